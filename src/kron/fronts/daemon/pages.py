"""The pages of krond from outside: where they listen, who may use them, and the process that serves them.

They have a process of their own, so that no request delays a start and the daemon stays small.
"""

import asyncio
import errno
import logging
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

from kron.core.errors import InvalidOptionError

_log = logging.getLogger("kron.krond")
Address = tuple[str, int]
ONLY_LOOPBACK = "use an address that only this host reaches: 127.0.0.1:PORT, [::1]:PORT or localhost:PORT"
MAX_PORT = 65_535
# How long after an unexpected end the process of the pages is started again, in seconds.
RESTART_S = 5.0
# The columns of /proc/net/tcp: the addresses of a connection, its user and its inode.
LOCAL, REMOTE, UID, INODE = 1, 2, 7, 9


def listen(text: str) -> socket.socket:
    """Return a listening socket on a loopback address, or raise InvalidOptionError."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    address = "127.0.0.1" if host == "localhost" else host
    if not _is_loopback(address) or not port.isdecimal() or int(port) > MAX_PORT:
        raise InvalidOptionError(option="--listen", value=text, reason=ONLY_LOOPBACK)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        listening = socket.create_server((address, int(port)), family=family)
    except OSError as cause:
        taken = cause.errno == errno.EADDRINUSE
        reason = "another process listens there" if taken else str(cause.strerror or cause)
        raise InvalidOptionError(option="--listen", value=text, reason=reason) from cause
    # Connections inherit it. Without it each response waits 40 ms for the client to acknowledge its headers.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def url_of(listening: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port, *_ = listening.getsockname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class PagesProcess:
    """Keeps the process of the pages running; it ends when its standard input does, so with this one."""

    def __init__(self, command: Sequence[str], listening: socket.socket) -> None:
        self._command = command
        self._listening = listening

    async def run(self) -> None:
        """Run it until cancelled; one that ends is started again."""
        number = self._listening.fileno()
        _log.info("pages on %s", url_of(self._listening))
        while True:
            process = await asyncio.create_subprocess_exec(
                *self._command, str(number), stdin=asyncio.subprocess.PIPE, pass_fds=[number],
                start_new_session=True,
            )  # fmt: skip
            try:
                code = await process.wait()
            finally:
                if process.returncode is None and process.stdin is not None:
                    process.stdin.close()
            _log.error("the process that serves the pages ended with exit code %d; restarting it", code)
            await asyncio.sleep(RESTART_S)


# --- who may use them ----------------------------------------------------------------------------------


def user_of_connection(client: Address, server: Address) -> int | None:
    """Return the user whose process has the other end of a connection on this host, or None if unknown."""
    for table, end, other in _rows(client, server):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                words = line.split()
                # A closed socket has no inode, and root's user id whichever user had it.
                if (words[LOCAL], words[REMOTE]) == (end, other) and words[INODE] != "0":
                    return int(words[UID])
    return None


def _rows(client: Address, server: Address) -> Iterator[tuple[str, str, str]]:
    """Yield the tables that may have the connection, and how each writes its two addresses."""
    mapped = [(f"::ffff:{host}" if ":" not in host else host, port) for host, port in (client, server)]
    if ":" not in client[0]:
        yield "/proc/net/tcp", _written(client), _written(server)
    yield "/proc/net/tcp6", _written(mapped[0]), _written(mapped[1])


def _written(address: Address) -> str:
    host, port = address
    packed = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
