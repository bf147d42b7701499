"""The canonical prefix-free encoding of lists and values, and the lengths that bounds depend on.

A natural number is written in Elias' gamma code of its successor, a string as its length in bytes and
the bytes, a task as its name, its schedule and its delay, a list as its length and its tasks. The
callback and the opaque key, which a trace cannot show, have no bits. The theory itself defines the
length of a time.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol


class TaskLike(Protocol):
    """The fields of a task that are encoded."""

    @property
    def id(self) -> str:
        """Return its name."""
        ...

    @property
    def schedule(self) -> str | None:
        """Return its expression."""
        ...

    @property
    def retry_delay(self) -> int:
        """Return its delay."""
        ...


def encode_number(number: int) -> str:
    """Return the code of a natural number as zeros and ones; a negative number counts as zero."""
    digits = f"{max(number, 0) + 1:b}"
    return "0" * (len(digits) - 1) + digits


def encode_text(text: str) -> str:
    """Return the code of a string."""
    octets = text.encode("utf-8", "surrogatepass")
    return encode_number(len(octets)) + "".join(f"{octet:08b}" for octet in octets)


def encode_task(task: TaskLike) -> str:
    """Return the code of a task."""
    return encode_text(task.id) + encode_text(task.schedule or "") + encode_number(task.retry_delay)


def encode_tasks(tasks: Sequence[TaskLike]) -> str:
    """Return the code of a list."""
    return encode_number(len(tasks)) + "".join(map(encode_task, tasks))


def bits_of_number(number: int) -> int:
    """Return the length of a number's code."""
    return 2 * (max(number, 0) + 1).bit_length() - 1


def bits_of_text(text: str) -> int:
    """Return the length of a string's code."""
    size = len(text.encode("utf-8", "surrogatepass"))
    return bits_of_number(size) + 8 * size


def bits_of_tasks(tasks: Sequence[TaskLike]) -> int:
    """Return |R|, the length of a list's code."""
    return bits_of_number(len(tasks)) + _sum(tasks)


def _sum(tasks: Iterable[TaskLike]) -> int:
    return sum(
        bits_of_text(task.id) + bits_of_text(task.schedule or "") + bits_of_number(task.retry_delay)
        for task in tasks
    )


def bits_of_time(t: int) -> int:
    """Return |t| = 1 + ceil(log2(1 + abs(t)))."""
    return 1 + abs(t).bit_length()
