"""Jobs for the engine, many of one definition, and an engine set up as in a program."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple

from kron.clocks.system import SystemClock
from kron.core.job.job import Job
from kron.core.plan.record import JobRecord
from kron.core.plan.registration import create
from kron.launchers.callback import CallbackLauncher
from kron.ports import Store
from kron.runtime.engine import Engine
from kron.runtime.journal import LogJournal

NAMESPACE = "runner:bench"
BATCH = 5_000


def names(count: int) -> list[str]:
    """Return a number of identities."""
    return [f"bench/{number}" for number in range(count)]


def daily_at(second: int) -> dict[str, object]:
    """Return the definition of a job that is due every day at the time of an instant."""
    time = datetime.fromtimestamp(second, UTC)
    return {"schedule": f"{time.second} {time.minute} {time.hour} * * *"}


def definitions(count: int, days: str = "* *") -> Iterator[dict[str, object]]:
    """Yield jobs as plain data, due on the given days and months; they share 1,440 schedules."""
    for number in range(count):
        schedule = f"{number % 60} {number // 60 % 24} {days} *"
        yield {"identity": f"bench/{number}", "schedule": schedule, "timezone": "Europe/Berlin"}


def records(identities: Iterable[str], definition: dict[str, object], now: int) -> Iterator[JobRecord]:
    """Yield new jobs that differ in their names only, as copies of the first."""
    first = create(Job.from_dict({"identity": "bench/first", **definition}), now=now)
    return (first._replace(identity=identity) for identity in identities)


async def put(store: Store, created: Iterable[JobRecord], now: int, *, namespace: str = NAMESPACE) -> None:
    """Write new jobs in batches, one transaction each."""
    rest = iter(created)
    while batch := list(islice(rest, BATCH)):
        settled = await store.put(namespace, created=batch, changed=[], now=now)
        assert not settled.stale_jobs, "the store was not empty"


class Rig(NamedTuple):
    """An engine, the launcher with its functions, and the journal that counts its work."""

    engine: Engine
    launcher: CallbackLauncher
    journal: LogJournal


def rig_of(store: Store, *, namespace: str = NAMESPACE, owner: str = "bench", balance: bool = False) -> Rig:
    """Return an engine set up as in a program."""
    clock, journal = SystemClock(), LogJournal()
    launcher = CallbackLauncher(clock)
    engine = Engine(
        store,
        clock,
        {"callback": launcher},
        namespace=namespace,
        owner=owner,
        journal=journal,
        balance=balance,
    )
    return Rig(engine, launcher, journal)
