"""Watching many processes at once."""

import asyncio
import select
from collections.abc import Callable


class PidfdWatcher:
    """The pidfds of all processes in one epoll, which the event loop watches as one file: that is cheaper."""

    def __init__(self) -> None:
        self._poll: select.epoll | None = None
        self._calls: dict[int, Callable[[], None]] = {}

    def add(self, pidfd: int, call: Callable[[], None]) -> None:
        """Call when a process has ended, again and again until it is removed."""
        if self._poll is None:
            self._poll = select.epoll()
            asyncio.get_running_loop().add_reader(self._poll.fileno(), self._look)
        self._poll.register(pidfd, select.EPOLLIN)
        self._calls[pidfd] = call

    def _look(self) -> None:
        for pidfd, _ in [] if self._poll is None else self._poll.poll(0):
            call = self._calls.get(pidfd)
            # One that was removed by the call before has none any more.
            if call is not None:
                call()

    def remove(self, pidfd: int | None) -> None:
        """Watch a process no longer; it is removed before its pidfd is closed."""
        if self._poll is not None and pidfd is not None and self._calls.pop(pidfd, None) is not None:
            self._poll.unregister(pidfd)

    def close(self) -> None:
        """Let go of the event loop when nothing is watched."""
        if self._poll is not None and not self._calls:
            asyncio.get_running_loop().remove_reader(self._poll.fileno())
            self._poll.close()
            self._poll = None
