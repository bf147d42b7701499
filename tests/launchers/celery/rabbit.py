"""A broker that speaks as much AMQP 0-9-1 as publishing takes, and misbehaves when told to."""

import json
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import NamedTuple, TypeAlias

Read: TypeAlias = Callable[[int], bytes]
METHOD, END = 1, b"\xce"
PUBLISH = (60, 40)
# What is answered to what: class and number of a method, and its arguments.
START = (10, 10, struct.pack(">BBII5sI5s", 0, 9, 0, 5, b"PLAIN", 5, b"en_US"))
TUNE = (10, 30, struct.pack(">HIH", 2047, 131_072, 0))
ANSWERS = {
    (10, 11): TUNE,
    (10, 40): (10, 41, b"\x00"),
    (10, 50): (10, 51, b""),
    (20, 10): (20, 11, struct.pack(">I", 0)),
    (20, 40): (20, 41, b""),
    (40, 10): (40, 11, b""),
    (50, 10): (50, 11, b"\x01q" + struct.pack(">II", 0, 0)),
    (50, 20): (50, 21, b""),
    (85, 10): (85, 11, b""),
}  # fmt: skip


class Taken(NamedTuple):
    """A message: its properties as they came, its content, and its queue."""

    properties: bytes
    content: list[object]
    queue: str


class Rabbit:
    """Takes messages; it confirms them unless told not to."""

    def __init__(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        self.taken: list[Taken] = []
        self.confirms = True
        # Messages to these queues are not confirmed.
        self.stuck: set[str] = set()
        self.connections: list[socket.socket] = []
        self.port: int = listening.getsockname()[1]
        self._listening = listening
        self._tls = tls

    def serve(self) -> None:
        """Serve one connection after the other, each in a thread, until the listener is closed."""
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            Thread(target=self._talk, args=(connection,), daemon=True).start()

    def hang_up(self) -> None:
        """End every connection, without a word."""
        for connection in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.connections.clear()

    def _talk(self, connection: socket.socket) -> None:
        with suppress(OSError, EOFError), connection:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            self.connections.append(connection)
            with connection, connection.makefile("rb") as words:
                words.read(len(b"AMQP\x00\x00\x09\x01"))
                _say(connection, 0, START)
                self._answer(connection, words.read)

    def _answer(self, connection: socket.socket, read: Read) -> None:
        number = 0
        while True:  # ends when either side closes
            _, channel, payload = _frame(read)
            method = struct.unpack(">HH", payload[:4])
            if method in ANSWERS:
                _say(connection, channel, ANSWERS[method])
            elif method == PUBLISH:
                number += 1
                queue = _routing_key(payload)
                self.taken.append(_message(read, queue))
                if self.confirms and queue not in self.stuck:
                    _say(connection, channel, (60, 80, struct.pack(">QB", number, 0)))


def _frame(read: Read) -> tuple[int, int, bytes]:
    head = read(7)
    if len(head) < 7:
        raise EOFError
    kind, channel, size = struct.unpack(">BHI", head)
    payload = read(size + 1)
    assert payload[-1:] == END
    return kind, channel, payload[:-1]


def _routing_key(payload: bytes) -> str:
    """Return the routing key of a message: after method, reserved bytes and exchange."""
    start = 7 + payload[6]
    return payload[start + 1 : start + 1 + payload[start]].decode()


def _message(read: Read, queue: str) -> Taken:
    _, _, header = _frame(read)
    (size,) = struct.unpack(">Q", header[4:12])
    body = b""
    while len(body) < size:
        body += _frame(read)[2]
    return Taken(header, json.loads(body), queue)


def _say(connection: socket.socket, channel: int, method: tuple[int, int, bytes]) -> None:
    payload = struct.pack(">HH", *method[:2]) + method[2]
    connection.sendall(struct.pack(">BHI", METHOD, channel, len(payload)) + payload + END)


@contextmanager
def rabbit(tls: ssl.SSLContext | None = None, *, host: str = "127.0.0.1") -> Iterator[Rabbit]:
    """Run a broker on loopback."""
    with socket.create_server((host, 0)) as listening:
        broker = Rabbit(listening, tls)
        thread = Thread(target=broker.serve, daemon=True)
        thread.start()
        try:
            yield broker
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            broker.hang_up()
            thread.join()
