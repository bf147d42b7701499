"""Messages between krond and a supervisor: the length of each, then JSON."""

import json

from kron.launchers.process.supervisor.record import Record

HEADER = 4


def encoded(message: Record) -> bytes:
    """Return one message: its length, then JSON."""
    text = json.dumps(message).encode()
    return len(text).to_bytes(HEADER, "big") + text


def has_message(received: bytearray) -> bool:
    """Return whether some bytes start with a whole message."""
    return len(received) >= HEADER and HEADER + int.from_bytes(received[:HEADER], "big") <= len(received)


def take_message(received: bytearray) -> Record | None:
    """Remove and return the first whole message of some bytes, or None."""
    if not has_message(received):
        return None
    size = HEADER + int.from_bytes(received[:HEADER], "big")
    text = bytes(received[HEADER:size])
    del received[:size]
    return dict(json.loads(text))
