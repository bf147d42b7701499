"""The control socket: one JSON line in, one JSON line out, for the user of krond and for root alone."""

import asyncio
import json
import logging
import os
import pwd
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path

from kron.core.errors import InputError, KronError, Problem
from kron.fronts.daemon.place import bound_socket

_log = logging.getLogger("kron.krond")
# The longest request: a set of job definitions.
MAX_REQUEST = 64 << 20
_PEER = struct.Struct("3i")

Document = dict[str, object]
# Answers a request of a caller.
Handler = Callable[[str, Mapping[str, object]], Awaitable[object]]


class ControlServer:
    """Answers requests on a private socket."""

    def __init__(self, path: Path, handle: Handler) -> None:
        self._path = path
        self._handle = handle
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        listening = bound_socket(self._path)
        self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=MAX_REQUEST)

    async def close(self) -> None:
        """Stop listening, and remove the socket."""
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer = await self._answer(reader, writer)
            if answer is not None:
                writer.write(json.dumps(answer, default=str).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            _log.debug("a control connection ended: %s", error)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Document | None:
        uid = _peer_uid(writer.get_extra_info("socket"))
        if not may_control(uid):
            return error_document(InputError("only root and krond's own user may control it"))
        line = await reader.readline()
        if not line:
            return None
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise InputError("a request is a JSON object")
            return {"result": await self._handle(name_of(uid), request)}
        except KronError as error:
            return error_document(error)
        except (TypeError, ValueError) as error:
            return error_document(InputError(f"the request cannot be read: {error}"))
        except Exception as error:  # noqa: BLE001 - a defect in one answer must not end the daemon
            _log.exception("a control request failed")
            return error_document(KronError(f"internal error: {type(error).__name__}"))


def _peer_uid(connection: socket.socket) -> int:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return int(_PEER.unpack(raw)[1])


def may_control(uid: int) -> bool:
    """Return whether a user may control krond, over its socket or on its pages: root, and krond's own."""
    return uid in (0, os.geteuid())


def name_of(uid: int) -> str:
    """Return the name of a user, or the number if there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def error_document(error: KronError) -> Document:
    """Return an error as a client reads it."""
    problems = getattr(error, "problems", ())
    listed = [(each.path, each.value, each.reason) for each in problems if isinstance(each, Problem)]
    return {
        "error": {
            "code": getattr(error, "code", "internal"),
            "message": str(error),
            "details": error.details,
            "problems": listed,
        }
    }
