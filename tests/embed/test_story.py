"""Stories in virtual time on every store: calls through restarts, crashes, edits and odd clocks."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kron.ports import Store
from kron.stores.postgres.store import PostgresStore
from kron.stores.sqlite.store import SqliteStore
from tests.embed.stage import Act, Given, KeptInMemory, Stage, crash, init, jump, stop, until
from tests.postgres import Server
from tests.tiers import mostly_slow

pytestmark = pytest.mark.slow

MINUTELY = Given("a", "* * * * *")
HOURLY = Given("a", "0 * * * *")
QUARTERLY = Given("a", "15,30,45,0 * * * *")


@pytest.fixture(params=["memory", "file"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    kept = KeptInMemory()

    def make_store() -> Store:
        return kept if request.param == "memory" else SqliteStore(str(tmp_path / "kron.db"))

    made = Stage(make_store, free=lambda: None)
    yield made
    made.traced()
    await made.close()


@pytest.fixture
async def postgres_stage(postgres: Server) -> AsyncIterator[Stage]:
    url = postgres.fresh()

    def free() -> None:
        """End the lease of a process that died; it would last for half a minute of real time."""
        postgres.execute("UPDATE leases SET owner = NULL", url)

    made = Stage(lambda: PostgresStore(url), free=free)
    yield made
    made.traced()
    await made.close()


Story = tuple[list[Act], list[str]]

FIRST_START = {
    "at once where the current minute matches": (
        [init("12:00:30", MINUTELY), until("12:00:59")],
        ["12:00:30 a"],
    ),
    "not at once where it does not": ([init("12:01:30", HOURLY), until("12:59:59")], []),
    "then at the next match": (
        [init("12:01:30", HOURLY), until("14:00")],
        ["13:00 a", "14:00 a"],
    ),
    "at the very beginning of a minute": ([init("12:00", HOURLY), until("12:30")], ["12:00 a"]),
    "in the last moment of a minute": ([init("12:00:59.999", HOURLY), until("12:30")], ["12:00:59.999 a"]),
    "once in its first minute": ([init("12:00:10", HOURLY), until("12:59")], ["12:00:10 a"]),
    "each of several": (
        [init("12:00:30", MINUTELY, Given("b", "1 * * * *"), Given("c", "0 * * * *")), until("12:01")],
        ["12:00:30 a", "12:00:30 c", "12:01 a", "12:01 b"],
    ),
    "the minute of a first registration is not caught up with": (
        [
            init("12:00:30", Given("a", "0 * * * *")),
            stop("12:00:30"),
            init("12:00:40", HOURLY),
            until("12:10"),
        ],
        [],
    ),
    "nothing for an empty list": ([init("12:00:30"), until("12:10")], []),
}

RESTART = {
    "goes on where it was": (
        [init("12:00:30", HOURLY), stop("12:10"), init("12:20", HOURLY), until("13:00")],
        ["12:00:30 a", "13:00 a"],
    ),
    "an hour's outage is one run, not four": (
        [init("12:01", QUARTERLY), stop("12:20"), init("13:20", QUARTERLY), until("13:30")],
        ["12:15 a", "13:20 a", "13:30 a"],
    ),
    "a crash in between is one run, too": (
        [init("12:01", QUARTERLY), crash("12:20"), init("13:20", QUARTERLY), until("13:30")],
        ["12:15 a", "13:20 a", "13:30 a"],
    ),
    "years of outage are one run": (
        [
            init("12:01", MINUTELY),
            stop("12:01:30"),
            init("2031-01-01 12:00", MINUTELY),
            until("2031-01-01 12:01"),
        ],
        ["12:01 a", "2031-01-01 12:00 a", "2031-01-01 12:01 a"],
    ),
    "what was missed after the first registration runs, although the task never ran": (
        [init("12:01", HOURLY), stop("12:30"), init("13:30", HOURLY), until("13:59")],
        ["13:30 a"],
    ),
    "nothing was missed": (
        [init("12:00:30", HOURLY), stop("12:10"), init("12:50", HOURLY), until("12:59")],
        ["12:00:30 a"],
    ),
    "a minute that was served is not served again": (
        [init("12:00:10", HOURLY), stop("12:00:20"), init("12:00:30", HOURLY), until("12:30")],
        ["12:00:10 a"],
    ),
    "a removed task is forgotten and new when it returns": (
        [
            init("12:00:30", HOURLY),
            stop("12:10"),
            init("12:20"),
            stop("12:30"),
            init("13:10", HOURLY),
            until("13:59"),
        ],
        ["12:00:30 a"],
    ),
    "a removed task that returns in its minute runs": (
        [
            init("12:00:10", HOURLY),
            stop("12:00:20"),
            init("12:00:30"),
            stop("12:00:31"),
            init("12:00:40", HOURLY),
            until("12:30"),
        ],
        ["12:00:10 a", "12:00:40 a"],
    ),
    "twice stopped and begun in one minute": (
        [
            init("12:00:10", HOURLY),
            stop("12:00:20"),
            init("12:00:21", HOURLY),
            stop("12:00:22"),
            init("12:00:23", HOURLY),
            until("13:00"),
        ],
        ["12:00:10 a", "13:00 a"],
    ),
}

RETRY = {
    "after exactly the delay": (
        [init("12:00:30", Given("a", "0 * * * *", 90, "fail")), until("12:59")],
        ["12:00:30 a", "12:02 a"],
    ),
    "again and again": (
        [init("12:00:30", Given("a", "0 * * * *", 600, "fail, fail, fail")), until("12:59")],
        ["12:00:30 a", "12:10:30 a", "12:20:30 a", "12:30:30 a"],
    ),
    "counted from the failure": (
        [init("12:00", Given("a", "0 * * * *", 60, "fail 30s")), until("12:59")],
        ["12:00 a", "12:01:30 a"],
    ),
    "at once": ([init("12:00", Given("a", "0 * * * *", 0, "fail, fail")), until("12:59")], ["12:00 a"] * 3),
    "below a millisecond it comes a millisecond later": (
        [init("12:00", Given("a", "0 * * * *", 0.0000005, "fail")), until("12:59")],
        ["12:00 a"] * 2,
    ),
    "a microsecond": (
        [init("12:00", Given("a", "0 * * * *", 0.000001, "fail")), until("12:59")],
        ["12:00 a", "12:00:00.001 a"],
    ),
    "pre-empted by the next due": (
        [init("12:00", Given("a", "* * * * *", 90, "fail")), until("12:02")],
        ["12:00 a", "12:01 a", "12:02 a"],
    ),
    "at the same instant as the next due it is one start": (
        [init("12:00", Given("a", "* * * * *", 60, "fail")), until("12:01")],
        ["12:00 a", "12:01 a"],
    ),
    "waits through a restart": (
        [
            init("12:00", Given("a", "0 * * * *", 600, "fail")),
            stop("12:01"),
            init("12:05", Given("a", "0 * * * *", 600)),
            until("12:59"),
        ],
        ["12:00 a", "12:10 a"],
    ),
    "waits through a crash": (
        [
            init("12:00", Given("a", "0 * * * *", 600, "fail")),
            crash("12:01"),
            init("12:05", Given("a", "0 * * * *", 600)),
            until("12:59"),
        ],
        ["12:00 a", "12:10 a"],
    ),
    "that came due while nothing ran comes at once": (
        [
            init("12:00", Given("a", "0 * * * *", 600, "fail")),
            stop("12:01"),
            init("12:50", Given("a", "0 * * * *", 600)),
            until("12:59"),
        ],
        ["12:00 a", "12:50 a"],
    ),
    "that came due together with the next due is one start": (
        [
            init("12:00", Given("a", "0 * * * *", 600, "fail")),
            stop("12:01"),
            init("13:50", Given("a", "0 * * * *", 600)),
            until("13:59"),
        ],
        ["12:00 a", "13:50 a"],
    ),
    "of one task leaves the other alone": (
        [init("12:00", Given("a", "0 * * * *", 30, "fail"), Given("b", "* * * * *")), until("12:01")],
        ["12:00 a", "12:00 b", "12:00:30 a", "12:01 b"],
    ),
}

LONG_RUN = {
    "over one due: met when it ends": (
        [init("12:00", Given("a", "* * * * *", 60, "90s")), until("12:02")],
        ["12:00 a", "12:01:30 a", "12:02 a"],
    ),
    "over several dues: one start": (
        [init("12:00", Given("a", "* * * * *", 60, "270s")), until("12:05")],
        ["12:00 a", "12:04:30 a", "12:05 a"],
    ),
    "that fails over a due: the due comes first, and no retry after it": (
        [init("12:00", Given("a", "0,1 * * * *", 60, "fail 90s")), until("12:59")],
        ["12:00 a", "12:01:30 a"],
    ),
    "that ends at the instant of a due": (
        [init("12:00", Given("a", "0,1 * * * *", 60, "60s")), until("12:59")],
        ["12:00 a", "12:01 a"],
    ),
    "delays nobody else": (
        [init("12:00", Given("a", "* * * * *", 60, "hang"), Given("b", "* * * * *")), until("12:02")],
        ["12:00 a", "12:00 b", "12:01 b", "12:02 b"],
    ),
    "is waited for by stop, and its due comes after the restart": (
        [
            init("12:00", Given("a", "0,1 * * * *", 60, "90s")),
            stop("12:01:10"),
            until("12:01:40"),
            init("12:02", Given("a", "0,1 * * * *")),
            until("12:59"),
        ],
        ["12:00 a", "12:02 a"],
    ),
    "that fails while stopping is tried again after the restart": (
        [
            init("12:00", Given("a", "0 * * * *", 600, "fail 90s")),
            stop("12:00:10"),
            until("12:02"),
            init("12:03", Given("a", "0 * * * *", 600)),
            until("12:59"),
        ],
        ["12:00 a", "12:11:30 a"],
    ),
}

ORPHAN = {
    "starts again at once": (
        [
            init("12:00", Given("a", "0 * * * *", 60, "hang")),
            crash("12:00:30"),
            init("12:10", HOURLY),
            until("12:59"),
        ],
        ["12:00 a", "12:10 a"],
    ),
    "and a due is one start": (
        [
            init("12:00", Given("a", "0 * * * *", 60, "hang")),
            crash("12:30"),
            init("13:10", HOURLY),
            until("13:59"),
        ],
        ["12:00 a", "13:10 a"],
    ),
    "and a due that waited for it is one start": (
        [
            init("12:00", Given("a", "0,1 * * * *", 60, "hang")),
            crash("12:30"),
            init("12:40", Given("a", "0,1 * * * *")),
            until("12:59"),
        ],
        ["12:00 a", "12:40 a"],
    ),
    "with the new configuration": (
        [
            init("12:00", Given("a", "0 * * * *", 60, "hang")),
            crash("12:00:30"),
            init("12:10", Given("a", "30 * * * *", 60, "fail")),
            until("12:59"),
        ],
        ["12:00 a", "12:10 a", "12:11 a", "12:30 a"],
    ),
    "that dies again starts again": (
        [
            init("12:00", Given("a", "0 * * * *", 60, "hang, hang, hang")),
            crash("12:01"),
            init("12:02", HOURLY),
            crash("12:03"),
            init("12:04", HOURLY),
            crash("12:05"),
            init("12:06", HOURLY),
            until("12:59"),
        ],
        ["12:00 a", "12:02 a", "12:04 a", "12:06 a"],
    ),
    "that is not registered any more does not start": (
        [
            init("12:00", Given("a", "0 * * * *", 60, "hang")),
            crash("12:00:30"),
            init("12:10"),
            until("12:59"),
        ],
        ["12:00 a"],
    ),
    "that is removed and comes back is new": (
        [
            init("12:00", Given("a", "0 * * * *", 60, "hang")),
            crash("12:00:30"),
            init("12:10"),
            stop("12:11"),
            init("12:12", HOURLY),
            until("12:59"),
        ],
        ["12:00 a"],
    ),
    "of one task leaves the other alone": (
        [
            init("12:00", Given("a", "0 * * * *", 60, "hang"), Given("b", "0 * * * *")),
            crash("12:00:30"),
            init("12:10", HOURLY, Given("b", "0 * * * *")),
            until("12:59"),
        ],
        ["12:00 a", "12:00 b", "12:10 a"],
    ),
    "whose retry fails is tried again": (
        [
            init("12:00", Given("a", "0 * * * *", 60, "hang")),
            crash("12:00:30"),
            init("12:10", Given("a", "0 * * * *", 60, "fail")),
            until("12:59"),
        ],
        ["12:00 a", "12:10 a", "12:11 a"],
    ),
}

OVERRIDE = {
    "due once where the new expression matched since the last start": (
        [init("12:00:30", HOURLY), stop("12:05"), init("12:20", Given("a", "10,15 * * * *")), until("13:09")],
        ["12:00:30 a", "12:20 a"],
    ),
    "not due where it did not": (
        [init("12:00:30", HOURLY), stop("12:05"), init("12:20", Given("a", "30 * * * *")), until("12:59")],
        ["12:00:30 a", "12:30 a"],
    ),
    "matched while the scheduler ran, too": (
        [init("12:00:30", HOURLY), stop("12:19"), init("12:20", Given("a", "10 * * * *")), until("12:59")],
        ["12:00:30 a", "12:20 a"],
    ),
    "a minute the old expression had and lost is given up": (
        [init("12:00:30", HOURLY), stop("12:05"), init("13:20", Given("a", "30 14 * * *")), until("14:30")],
        ["12:00:30 a", "14:30 a"],
    ),
    "the minute of the last start does not count again": (
        [
            init("12:00:30", HOURLY),
            stop("12:00:40"),
            init("12:00:50", Given("a", "0,30 * * * *")),
            until("12:30"),
        ],
        ["12:00:30 a", "12:30 a"],
    ),
    "never started: since the first registration, and its own minute does not count": (
        [init("12:05:30", HOURLY), stop("12:06"), init("12:20", Given("a", "5 * * * *")), until("12:59")],
        [],
    ),
    "never started, matched since the first registration": (
        [init("12:05:30", HOURLY), stop("12:06"), init("12:20", Given("a", "6 * * * *")), until("12:59")],
        ["12:20 a"],
    ),
    "never started, through two overrides": (
        [
            init("12:05:30", HOURLY),
            stop("12:06"),
            init("12:20", Given("a", "30 * * * *")),
            stop("12:21"),
            init("12:22", Given("a", "6 * * * *")),
            until("12:59"),
        ],
        ["12:22 a"],
    ),
    "a minute on record as given up by the old expression is due by the new one": (
        [
            init("12:00", Given("a", "* * * * *", 60, "200s")),
            stop("12:03:10"),
            until("12:03:30"),
            init("12:10", Given("a", "2 * * * *")),
            until("12:59"),
        ],
        ["12:00 a", "12:10 a"],
    ),
    "what waited under the old expression is given up": (
        [
            init("12:00", Given("a", "0,3 * * * *", 60, "200s")),
            stop("12:03:10"),
            until("12:03:30"),
            init("12:10", Given("a", "30 * * * *")),
            until("12:59"),
        ],
        ["12:00 a", "12:30 a"],
    ),
    "a longer delay withdraws a retry": (
        [
            init("12:00", Given("a", "0 * * * *", 600, "fail")),
            stop("12:01"),
            init("12:05", Given("a", "0 * * * *", 1200)),
            until("12:59"),
        ],
        ["12:00 a", "12:20 a"],
    ),
    "a shorter delay brings it forward": (
        [
            init("12:00", Given("a", "0 * * * *", 1200, "fail")),
            stop("12:01"),
            init("12:05", Given("a", "0 * * * *", 60)),
            until("12:59"),
        ],
        ["12:00 a", "12:05 a"],
    ),
    "one spelling more is another configuration, and nothing is due for it": (
        [init("12:00:30", HOURLY), stop("12:05"), init("12:20", Given("a", "0  * * * *")), until("13:00")],
        ["12:00:30 a", "13:00 a"],
    ),
    "after a stop that waited for a run over several dues": (
        [
            init("12:01:59", Given("a", "* * * * *", 200, "90s")),
            stop("12:02:19"),
            until("12:04"),
            init("12:10", Given("a", "1,3 * * * *")),
            until("12:59"),
        ],
        ["12:01:59 a", "12:10 a"],
    ),
    "back and forth": (
        [
            init("12:00:30", HOURLY),
            stop("12:05"),
            init("12:20", Given("a", "10 * * * *")),
            stop("12:21"),
            init("12:22", HOURLY),
            stop("12:23"),
            init("12:24", Given("a", "10 * * * *")),
            until("13:10"),
        ],
        ["12:00:30 a", "12:20 a", "13:10 a"],
    ),
    "the run it owes is tried again if it fails": (
        [
            init("12:00:30", HOURLY),
            stop("12:05"),
            init("12:20", Given("a", "10 * * * *", 60, "fail")),
            until("12:59"),
        ],
        ["12:00:30 a", "12:20 a", "12:21 a"],
    ),
    "the run it owes is restarted if it dies": (
        [
            init("12:00:30", HOURLY),
            stop("12:05"),
            init("12:20", Given("a", "10 * * * *", 60, "hang")),
            crash("12:21"),
            init("12:22", Given("a", "10 * * * *")),
            until("12:59"),
        ],
        ["12:00:30 a", "12:20 a", "12:22 a"],
    ),
    "the run it owes outlives a stop before it began": (
        [
            init("12:00:30", HOURLY),
            stop("12:05"),
            init("12:20", Given("a", "10 * * * *")),
            stop("12:20"),
            init("12:30", Given("a", "10 * * * *")),
            until("12:59"),
        ],
        ["12:00:30 a", "12:30 a"],
    ),
}

CLOCK = {
    "set back, nothing runs twice": (
        [init("12:00:30", MINUTELY), until("12:03"), jump("12:03", "12:01:30"), until("12:05")],
        ["12:00:30 a", "12:01 a", "12:02 a", "12:03 a", "12:04 a", "12:05 a"],
    ),
    "set forward, what was passed over is one run": (
        [init("12:00:30", MINUTELY), jump("12:01:10", "12:30:30"), until("12:31")],
        ["12:00:30 a", "12:01 a", "12:30:30 a", "12:31 a"],
    ),
    "set back while stopped": (
        [
            init("12:00:30", MINUTELY),
            until("12:03"),
            stop("12:03:10"),
            jump("12:03:20", "12:01:30"),
            init("12:01:30", MINUTELY),
            until("12:05"),
        ],
        ["12:00:30 a", "12:01 a", "12:02 a", "12:03 a", "12:04 a", "12:05 a"],
    ),
    "set back and crashed": (
        [
            init("12:00:30", MINUTELY),
            until("12:03"),
            jump("12:03:10", "12:01:20"),
            until("12:01:30"),
            crash("12:01:30"),
            init("12:01:40", MINUTELY),
            until("12:05"),
        ],
        ["12:00:30 a", "12:01 a", "12:02 a", "12:03 a", "12:04 a", "12:05 a"],
    ),
    "set back, and all tasks removed meanwhile": (
        [
            init("12:00:30", MINUTELY),
            until("12:03"),
            stop("12:03:10"),
            init("12:04:10"),
            stop("12:04:20"),
            jump("12:04:30", "12:01:30"),
            init("12:01:30", MINUTELY),
            until("12:05"),
        ],
        # Removed tasks are forgotten; after a steady minute the host's clock is authoritative again.
        ["12:00:30 a", "12:01 a", "12:02 a", "12:03 a", "12:02:30 a", "12:03 a", "12:04 a", "12:05 a"],
    ),
}

CALENDAR = {
    "the last days of months": (
        [init("01-30 00:00", Given("a", "0 0 31 * *")), until("05-31 23:00")],
        ["01-31 00:00 a", "03-31 00:00 a", "05-31 00:00 a"],
    ),
    "leap days only": (
        [init("02-01 00:00", Given("a", "0 0 29 2 *")), until("2032-02-29 00:00")],
        ["2028-02-29 00:00 a", "2032-02-29 00:00 a"],
    ),
    "either day field": (
        [init("06-01 12:00", Given("a", "0 0 3 * 5")), until("06-12 12:00")],
        ["06-03 00:00 a", "06-05 00:00 a", "06-12 00:00 a"],
    ),
    "new year": (
        [init("12-31 23:30", Given("a", "0 0 1 1 *")), until("2027-01-01 00:00")],
        ["2027-01-01 00:00 a"],
    ),
}

STORIES = {
    "first start": FIRST_START, "restart": RESTART, "retry": RETRY, "long run": LONG_RUN, "orphan": ORPHAN,
    "override": OVERRIDE, "clock": CLOCK, "calendar": CALENDAR,
}  # fmt: skip


# Stories of several years.
LONG = ("leap days only",)


def rows(stories: dict[str, Story]) -> list[object]:
    return [
        pytest.param(acts, calls, id=name, marks=pytest.mark.slow if name in LONG else ())
        for name, (acts, calls) in stories.items()
    ]


@pytest.mark.parametrize(("acts", "calls"), rows(FIRST_START))
async def test_a_task_that_was_never_stored(stage: Stage, acts: list[Act], calls: list[str]) -> None:
    assert await stage.play(*acts) == calls


@pytest.mark.parametrize(("acts", "calls"), rows(RESTART))
async def test_a_restart(stage: Stage, acts: list[Act], calls: list[str]) -> None:
    assert await stage.play(*acts) == calls


@pytest.mark.parametrize(("acts", "calls"), rows(RETRY))
async def test_a_retry_comes(stage: Stage, acts: list[Act], calls: list[str]) -> None:
    assert await stage.play(*acts) == calls


@pytest.mark.parametrize(("acts", "calls"), rows(LONG_RUN))
async def test_a_long_run(stage: Stage, acts: list[Act], calls: list[str]) -> None:
    assert await stage.play(*acts) == calls


@pytest.mark.parametrize(("acts", "calls"), rows(ORPHAN))
async def test_an_orphan(stage: Stage, acts: list[Act], calls: list[str]) -> None:
    assert await stage.play(*acts) == calls


@pytest.mark.parametrize(("acts", "calls"), rows(OVERRIDE))
async def test_an_overridden_task(stage: Stage, acts: list[Act], calls: list[str]) -> None:
    assert await stage.play(*acts) == calls


@pytest.mark.parametrize(("acts", "calls"), rows(CLOCK))
async def test_the_clock_was(stage: Stage, acts: list[Act], calls: list[str]) -> None:
    assert await stage.play(*acts) == calls


@pytest.mark.parametrize(("acts", "calls"), rows(CALENDAR))
async def test_a_day_that_not_every_month_has(stage: Stage, acts: list[Act], calls: list[str]) -> None:
    assert await stage.play(*acts) == calls


ZONES = [
    pytest.param(
        "Europe/Berlin",
        [init("03-28 00:00", Given("a", "30 2 * * *")), until("03-31 00:00")],
        ["03-28 01:30 a", "03-30 00:30 a"],
        id="Berlin, spring: no 02:30",
    ),
    pytest.param(
        "Europe/Berlin",
        [init("10-24 12:00", Given("a", "30 2 * * *")), until("10-26 12:00")],
        ["10-25 00:30 a", "10-25 01:30 a", "10-26 01:30 a"],
        id="Berlin, autumn: 02:30 twice",
    ),
    pytest.param(
        "America/New_York",
        [init("03-08 00:00", Given("a", "0 * * * *")), until("03-08 08:00")],
        [f"03-08 0{hour}:00 a" for hour in range(9)],
        id="New York, spring: every hour that there is",
    ),
    pytest.param(
        "Australia/Lord_Howe",
        [init("10-03 12:00", Given("a", "15 2 * * *")), until("10-05 00:00")],
        ["10-04 15:15 a"],
        id="Lord Howe, spring by half an hour: no 02:15",
    ),
    pytest.param(
        "Australia/Lord_Howe",
        [init("04-04 12:00", Given("a", "45 1 * * *")), until("04-05 00:00")],
        ["04-04 14:45 a", "04-04 15:15 a"],
        id="Lord Howe, autumn by half an hour: 01:45 twice",
    ),
    pytest.param(
        "America/Santiago",
        [init("09-05 12:00", Given("a", "30 0 * * *")), until("09-08 00:00")],
        ["09-07 03:30 a"],
        id="Santiago, spring at midnight: no 00:30 on the sixth",
    ),
    pytest.param(
        "America/Santiago",
        [init("04-04 12:00", Given("a", "30 23 * * *")), until("04-05 12:00")],
        ["04-05 02:30 a", "04-05 03:30 a"],
        id="Santiago, autumn at midnight: 23:30 twice",
    ),
    pytest.param(
        "Asia/Kathmandu",
        [init("01-01 00:00", Given("a", "0 12 * * *")), until("01-02 00:00")],
        ["06:15 a"],
        id="Kathmandu, three quarters of an hour off",
    ),
    pytest.param(
        "Europe/Berlin",
        [
            init("03-28 12:00", Given("a", "30 2 * * *")),
            stop("03-28 13:00"),
            init("03-29 12:00", Given("a", "30 2 * * *")),
            until("03-29 20:00"),
        ],
        [],
        id="a skipped minute was not missed",
    ),
    pytest.param(
        "Europe/Berlin",
        [
            init("10-25 00:30:10", Given("a", "30 2 * * *")),
            stop("10-25 00:40"),
            init("10-25 01:40", Given("a", "30 2 * * *")),
            until("10-25 12:00"),
        ],
        ["10-25 00:30:10 a", "10-25 01:40 a"],
        id="the second of two was missed",
    ),
]


@pytest.mark.parametrize(("zone", "acts", "calls"), ZONES)
async def test_where_the_clocks_change(stage: Stage, zone: str, acts: list[Act], calls: list[str]) -> None:
    stage.zone = zone
    stage.lines.truncate(0)
    stage.lines.seek(0)
    assert await stage.play(*acts) == calls


SOME = [
    ("first start", "each of several"),
    ("restart", "an hour's outage is one run, not four"),
    ("restart", "a removed task is forgotten and new when it returns"),
    ("retry", "waits through a crash"),
    ("long run", "is waited for by stop, and its due comes after the restart"),
    ("orphan", "with the new configuration"),
    ("override", "a minute on record as given up by the old expression is due by the new one"),
    ("override", "a minute the old expression had and lost is given up"),
    ("clock", "set back while stopped"),
]


@pytest.mark.parametrize(("chapter", "name"), mostly_slow(SOME, fast=2))
async def test_postgresql_tells_the_same_story(postgres_stage: Stage, chapter: str, name: str) -> None:
    acts, calls = STORIES[chapter][name]
    assert await postgres_stage.play(*acts) == calls
