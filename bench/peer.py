"""The contenders: Kron and its peers, each called in its fastest natural way.

A chain is prepared outside the measurement; called, it walks over all its occurrences and returns the
last. A peer is imported when it is created, so a missing one costs only its rows.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from importlib import import_module
from itertools import islice, repeat
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

from bench.expression import Case
from kron.core.cron.schedule import Schedule
from kron.core.time.instant import datetime_of

Answer: TypeAlias = int | float | datetime | None
Chain: TypeAlias = Callable[[], Answer]

# The weekday numbers of cron as the names APScheduler 3 needs, which counts from Monday.
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


def second_of(answer: Answer) -> int:
    """Return any contender's result in whole seconds since 1970."""
    if isinstance(answer, datetime):
        return int(answer.timestamp())
    if answer is None:
        raise ValueError("no answer")
    return int(answer)


def tzinfo_of(zone: str) -> tzinfo:
    """Return a zone in the form fastest for peers: several have a shortcut for Python's UTC."""
    return UTC if zone == "UTC" else ZoneInfo(zone)


def local_start(case: Case) -> datetime:
    """Return the start of a case in its zone."""
    return datetime.fromtimestamp(case.start, tzinfo_of(case.zone))


class Peer(ABC):
    """One contender; `package` is the distribution whose version the report shows."""

    name: str
    package: str
    goes_back = False

    @abstractmethod
    def datetimes(self, case: Case) -> Chain:
        """Return the chain of next occurrences as aware datetimes."""

    @abstractmethod
    def seconds(self, case: Case) -> Chain:
        """Return the chain of next occurrences as seconds since 1970."""

    @abstractmethod
    def fresh(self, case: Case) -> Answer:
        """Parse a text and return its next occurrence."""

    def backwards(self, case: Case) -> Chain:
        """Return the chain of previous occurrences as seconds, if a peer `goes_back`."""
        raise NotImplementedError


class Kron(Peer):
    name = "kron"
    package = "kron-engine"
    goes_back = True

    def datetimes(self, case: Case) -> Chain:
        next_after = Schedule(case.text, case.zone).next_after
        start = datetime_of(case.start)

        def chain() -> datetime:
            found = start
            for _ in repeat(None, case.count):
                found = next_after(found)
            return found

        return chain

    def seconds(self, case: Case) -> Chain:
        next_after = Schedule(case.text, case.zone).plan.next_after

        def chain() -> int:
            found = case.start
            for _ in repeat(None, case.count):
                following = next_after(found)
                assert following is not None
                found = following
            return found

        return chain

    def backwards(self, case: Case) -> Chain:
        prev_at_or_before = Schedule(case.text, case.zone).plan.prev_at_or_before

        def chain() -> int:
            found = case.start
            for _ in repeat(None, case.count):
                previous = prev_at_or_before(found - 1)
                assert previous is not None
                found = previous
            return found

        return chain

    def fresh(self, case: Case) -> Answer:
        return Schedule(case.text, case.zone).plan.next_after(case.start)


class KronLocal(Kron):
    name = "kron, in the zone"

    def datetimes(self, case: Case) -> Chain:
        next_after = Schedule(case.text, case.zone).next_after
        start, zone = local_start(case), tzinfo_of(case.zone)

        def chain() -> datetime:
            found = start
            for _ in repeat(None, case.count):
                found = next_after(found).astimezone(zone)
            return found

        return chain


class Croniter(Peer):
    name = "croniter"
    package = "croniter"
    goes_back = True

    def __init__(self) -> None:
        self._croniter: Any = import_module("croniter").croniter

    def datetimes(self, case: Case) -> Chain:
        return self._chain(case, "get_next", datetime)

    def seconds(self, case: Case) -> Chain:
        return self._chain(case, "get_next", float)

    def backwards(self, case: Case) -> Chain:
        return self._chain(case, "get_prev", float)

    def fresh(self, case: Case) -> Answer:
        found: float = self._croniter(case.text, local_start(case)).get_next(float)
        return found

    def _chain(self, case: Case, step_name: str, kind: type) -> Chain:
        step: Callable[[type], Answer] = getattr(self._croniter(case.text, local_start(case)), step_name)

        def chain() -> Answer:
            found = None
            for _ in repeat(None, case.count):
                found = step(kind)
            return found

        return chain


class Cronsim(Peer):
    name = "cronsim"
    package = "cronsim"
    goes_back = True

    def __init__(self) -> None:
        self._cronsim: Any = import_module("cronsim").CronSim

    def datetimes(self, case: Case) -> Chain:
        return _walk(self._cronsim(case.text, local_start(case)), case.count)

    def seconds(self, case: Case) -> Chain:
        return _walk_seconds(self._cronsim(case.text, local_start(case)), case.count)

    def backwards(self, case: Case) -> Chain:
        return _walk_seconds(self._cronsim(case.text, local_start(case), reverse=True), case.count)

    def fresh(self, case: Case) -> Answer:
        found: datetime = next(self._cronsim(case.text, local_start(case)))
        return found


class ApScheduler(Peer):
    name = "APScheduler 3"
    package = "apscheduler"

    def __init__(self) -> None:
        self._trigger: Any = import_module("apscheduler.triggers.cron").CronTrigger

    def datetimes(self, case: Case) -> Chain:
        step, start = self._step(case), local_start(case)

        def chain() -> datetime:
            found = start
            for _ in repeat(None, case.count):
                found = step(found, found)
            return found

        return chain

    def seconds(self, case: Case) -> Chain:
        step, start = self._step(case), local_start(case)

        def chain() -> int:
            found, second = start, case.start
            for _ in repeat(None, case.count):
                found = step(found, found)
                second = int(found.timestamp())
            return second

        return chain

    def fresh(self, case: Case) -> Answer:
        start = local_start(case)
        return self._step(case)(start, start)

    def _step(self, case: Case) -> Callable[[datetime, datetime], datetime]:
        times, weekday = case.text.rsplit(" ", 1)
        named = "".join(WEEKDAYS[int(sign)] if sign.isdigit() else sign for sign in weekday)
        trigger = self._trigger.from_crontab(f"{times} {named}", tzinfo_of(case.zone))
        step: Callable[[datetime, datetime], datetime] = trigger.get_next_fire_time
        return step


class Celery(Peer):
    name = "Celery"
    package = "celery"

    def __init__(self) -> None:
        self._crontab: Any = import_module("celery.schedules").crontab
        self._make_app: Any = import_module("celery").Celery
        self._apps: dict[str, Any] = {}

    def datetimes(self, case: Case) -> Chain:
        remaining, start = self._remaining(case), local_start(case)

        def chain() -> datetime:
            found = start
            for _ in repeat(None, case.count):
                last, delta, _ = remaining(found)
                found = last + delta
            return found

        return chain

    def seconds(self, case: Case) -> Chain:
        remaining, start = self._remaining(case), local_start(case)

        def chain() -> int:
            found, second = start, case.start
            for _ in repeat(None, case.count):
                last, delta, _ = remaining(found)
                found = last + delta
                second = int(found.timestamp())
            return second

        return chain

    def fresh(self, case: Case) -> Answer:
        last, delta, _ = self._remaining(case)(local_start(case))
        return last + delta

    def _remaining(self, case: Case) -> Callable[[datetime], tuple[datetime, timedelta, datetime]]:
        """Return the calculation of crontab, whose first two parts add up to the next occurrence."""
        if case.zone not in self._apps:
            app = self._apps[case.zone] = self._make_app("bench", set_as_current=False)
            app.conf.timezone = case.zone
        minute, hour, day, month, weekday = case.text.split()
        start = local_start(case)
        crontab = self._crontab(
            minute, hour, day_of_week=weekday, day_of_month=day, month_of_year=month,
            nowfun=lambda: start, app=self._apps[case.zone],
        )  # fmt: skip
        remaining: Callable[[datetime], tuple[datetime, timedelta, datetime]] = crontab.remaining_delta
        return remaining


class Cronstable(Peer):
    name = "cronstable"
    package = "cronstable"
    goes_back = True

    def __init__(self) -> None:
        self._module: Any = import_module("cronstable.cronexpr")

    def datetimes(self, case: Case) -> Chain:
        return _walk(self._module.CronTab(case.text).occurrences(local_start(case)), case.count)

    def seconds(self, case: Case) -> Chain:
        return _walk_seconds(self._module.CronTab(case.text).occurrences(local_start(case)), case.count)

    def backwards(self, case: Case) -> Chain:
        prev = self._module.CronTab(case.text).prev
        start = datetime_of(case.start)
        zone = tzinfo_of(case.zone)

        def chain() -> int:
            found = start
            for _ in repeat(None, case.count):
                found -= timedelta(seconds=prev(found.astimezone(zone)))
            return int(found.timestamp())

        return chain

    def fresh(self, case: Case) -> Answer:
        delay: float = self._module.CronTab(case.text).next(local_start(case))
        return case.start + delay


PEERS: tuple[type[Peer], ...] = (Croniter, Cronsim, ApScheduler, Celery, Cronstable)


def _walk(occurrences: Iterator[datetime], count: int) -> Chain:
    def chain() -> datetime:
        return deque(islice(occurrences, count), maxlen=1)[0]

    return chain


def _walk_seconds(occurrences: Iterator[datetime], count: int) -> Chain:
    def chain() -> int | None:
        second = None
        for found in islice(occurrences, count):
            second = int(found.timestamp())
        return second

    return chain
