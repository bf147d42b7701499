"""Budgets of processor time: an answer that costs more is refused, so that no caller takes it from others."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from kron.clocks.system import processor_time
from kron.core.errors import InputError

# The processor time of one answer, in seconds.
ANSWER_S = 0.25

T = TypeVar("T")


class Compute(Protocol):
    """Runs a long computation outside the event loop."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """Return the result of `work`."""


async def inline(work: Callable[[], T], /) -> T:
    """Compute here, at once."""
    return work()


class TooCostlyError(InputError):
    """An answer needs more processor time than one request may use."""

    code = "too_costly"

    def __init__(self, *, seconds: float) -> None:
        super().__init__(
            f"The answer needs more than {seconds:g} s of processor time: request less at once",
            seconds=seconds,
        )


class CpuBudget:
    """The processor time that this thread may still use for one answer."""

    def __init__(self, seconds: float = ANSWER_S) -> None:
        self.seconds = seconds
        self._ends_at = processor_time() + seconds

    @property
    def is_spent(self) -> bool:
        """Say whether the time is used up."""
        return processor_time() >= self._ends_at

    def check(self) -> None:
        """Raise TooCostlyError if the time is used up."""
        if self.is_spent:
            raise TooCostlyError(seconds=self.seconds)

    def each(self, items: Iterable[T]) -> Iterator[T]:
        """Yield items as long as the time lasts, or raise TooCostlyError."""
        for item in items:
            self.check()
            yield item
