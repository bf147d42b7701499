"""Kron beside cronsim and croniter: equal answers where they mean the same, and a list of where they do not.

Texts are drawn from what Kron and a peer both define. Whatever one of them reads otherwise is left out
of the drawing and stands in DIFFERENCES instead, with both answers; the page in the documentation has
the same list with the reasons.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from pathlib import Path
from random import Random
from typing import TypeAlias
from zoneinfo import ZoneInfo

import pytest
from croniter import CroniterBadDateError, CroniterError, croniter
from cronsim import CronSim, CronSimError

from kron.core.cron.schedule import Schedule, seconds_between
from kron.core.errors import InputError
from kron.core.time.instant import seconds_of
from tests.tiers import mostly_slow

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cron-differences.md"
BERLIN = "Europe/Berlin"
# The clocks of Berlin go forward on 29 March 2026 and back on 25 October 2026.
FORWARD, BACK = datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 10, 25, 1, tzinfo=UTC)
# How many occurrences are compared of each text.
OCCURRENCES = 4

Seconds: TypeAlias = list[int]
Ask: TypeAlias = Callable[[str, datetime, int], Seconds]


# --- the three, queried the same way ---------------------------------------------------------------


def ask_kron(text: str, since: datetime, count: int, **options: str) -> Seconds:
    """Return the first occurrences later than an instant, in its zone."""
    schedule = Schedule(text, zone_name(since.tzinfo), **options)
    return list(islice(seconds_between(schedule.plan, seconds_of(since) + 1, None), count))


def ask_cronsim(text: str, since: datetime, count: int) -> Seconds:
    return [round(found.timestamp()) for found in islice(CronSim(text, since), count)]


def ask_croniter(text: str, since: datetime, count: int, **options: object) -> Seconds:
    """Query croniter, set to read seconds first and to follow Vixie's day rule."""
    chosen = {"second_at_beginning": True, "implement_cron_bug": True, **options}
    times = croniter(text, since, **chosen)
    return [round(times.get_next(float)) for _ in range(count)]


def zone_name(zone: tzinfo | None) -> str:
    return zone.key if isinstance(zone, ZoneInfo) else "UTC"


def zone_of(name: str) -> tzinfo:
    """Return a zone in the form the peers accept: both treat Python's UTC differently."""
    return UTC if name == "UTC" else ZoneInfo(name)


# --- texts that mean the same ----------------------------------------------------------------------

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
BOUNDS = {
    "second": (0, 59), "minute": (0, 59), "hour": (0, 23),
    "day": (1, 31), "month": (1, 12), "weekday": (0, 6),
}  # fmt: skip
FIELDS = tuple(BOUNDS)


class Writer:
    """Writes expressions both dialects define; subclasses add the syntax that one peer reads alike."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def texts(self, count: int) -> Iterator[str]:
        return (self.text() for _ in range(count))

    def text(self) -> str:
        names = FIELDS if self.random.random() < 0.2 else FIELDS[1:]
        return " ".join(self.field(name) for name in names)

    def field(self, name: str) -> str:
        if self.random.random() < 0.35:
            return "*"
        return ",".join(self.item(name) for _ in range(self.random.choice((1, 1, 1, 2, 3))))

    def item(self, name: str) -> str:
        kinds = (self.value, self.value, self.range, self.stepped_range, self.open_step, self.step, self.mark)
        return self.random.choice(kinds)(name)

    def value(self, name: str) -> str:
        return self.word(name, self.random.randint(*BOUNDS[name]))

    def word(self, name: str, value: int) -> str:
        """Write a value: a number, perhaps with a zero before it, or a name in any case."""
        names = MONTHS if name == "month" else WEEKDAYS if name == "weekday" else ()
        if names and self.random.random() < 0.3:
            word = names[value - BOUNDS[name][0]]
            return self.random.choice((word, word.upper(), word.title()))
        if name == "weekday" and value == 0 and self.random.random() < 0.5:
            return "7"
        return f"{value:02}" if self.random.random() < 0.1 else str(value)

    def range(self, name: str) -> str:
        low, high = sorted(self.random.sample(range(BOUNDS[name][0], BOUNDS[name][1] + 1), 2))
        return f"{self.number(low)}-{self.word(name, high)}"

    def number(self, value: int) -> str:
        return str(value)

    def stepped_range(self, name: str) -> str:
        return f"{self.range(name)}/{self.random.randint(1, 12)}"

    def open_step(self, name: str) -> str:
        """Write `a/n`, which is read alike except for weekdays and for the highest value."""
        if name == "weekday":
            return self.step(name)
        low, high = BOUNDS[name]
        return f"{self.random.randint(low, high - 1)}/{self.random.randint(1, 12)}"

    def step(self, name: str) -> str:
        return f"*/{self.random.randint(1, 12)}"

    def mark(self, name: str) -> str:
        return self.value(name)


class CronsimWriter(Writer):
    """Writes what cronsim reads as Kron does: also `L`, `LW`, `d#n` and `dL` anywhere in a list."""

    def mark(self, name: str) -> str:
        if name == "day":
            return self.random.choice(("L", "LW", "l"))
        if name == "weekday":
            day, nth = self.random.randint(0, 7), self.random.randint(1, 5)
            return self.random.choice((f"{day}#{nth}", f"{day}L"))
        return self.value(name)


class CroniterWriter(Writer):
    """Writes what croniter reads as Kron does: also ranges that wrap around, `L`, and `nW` or `d#n` alone."""

    def text(self) -> str:
        *others, day, month, weekday = super().text().split()
        if len(others) == 3:
            weekday = weekday.replace("7", "0")
        special = self.random.random()
        if special < 0.1:
            day, weekday = f"{self.random.randint(1, 28)}W", "*"
        elif special < 0.2:
            marks = [f"{self.random.randint(0, 6)}#{self.random.randint(1, 4)}" for _ in range(2)]
            day, weekday = "*", ",".join(marks[: self.random.randint(1, 2)])
        elif month != "*" and weekday != "*":
            day = "*"
        return " ".join((*others, starred_first(day), month, starred_first(weekday)))

    def range(self, name: str) -> str:
        ends = self.random.sample(range(BOUNDS[name][0], BOUNDS[name][1] + 1), 2)
        return f"{ends[0]}-{ends[1]}"

    def stepped_range(self, name: str) -> str:
        return f"{super().range(name)}/{self.random.randint(1, 12)}"

    def mark(self, name: str) -> str:
        return "L" if name == "day" else self.value(name)


def starred_first(field: str) -> str:
    """Put the items with a `*` in front, where both look for it."""
    return ",".join(sorted(field.split(","), key=lambda item: "*" not in item))


# From when to when an instant is drawn, and up to when answers are compared.
Span: TypeAlias = tuple[datetime, datetime, datetime]


def answer(ask: Ask, text: str, since: datetime) -> Seconds | str:
    """Return the occurrences, `none` where a peer says there are no more, or `refused`."""
    try:
        return ask(text, since, OCCURRENCES) or "none"
    except CroniterBadDateError:
        return "none"
    except (InputError, CronSimError, CroniterError):
        return "refused"


def compare(writer: Writer, ask: Ask, count: int, zone: str, spans: list[Span], **options: str) -> int:
    """Compare `count` texts, each from a random instant of a random span; return how many have times."""

    def kron(text: str, since: datetime, count: int) -> Seconds:
        return ask_kron(text, since, count, **options)

    same = 0
    for text in writer.texts(count):
        start, last, end = writer.random.choice(spans)
        place = writer.random.randrange(int((last - start).total_seconds()))
        since = (start + timedelta(seconds=place)).astimezone(zone_of(zone))
        wanted, found = answer(ask, text, since), answer(kron, text, since)
        if wanted == "none" or found == "refused":
            # Kron refuses at once what a peer finds by searching: no day of any year matches.
            assert (wanted in ("none", "refused"), found) == (True, "refused"), (text, since, wanted, found)
            continue
        assert not isinstance(wanted, str), f"{text}: the writer wrote what the peer does not read"
        assert not isinstance(found, str)
        stop = end.timestamp()
        assert [s for s in found if s < stop] == [s for s in wanted if s < stop], f"{text} since {since}"
        same += 1
    return same


FAR = datetime(2900, 1, 1, tzinfo=UTC)
ALWAYS = [(datetime(2000, 1, 1, tzinfo=UTC), datetime(2040, 1, 1, tzinfo=UTC), FAR)]
# Berlin's summer and winter, each until a day before the clocks change.
SEASONS = [
    (start + timedelta(days=1), end - timedelta(days=2), end - timedelta(days=1))
    for start, end in ((FORWARD, BACK), (BACK, datetime(2027, 3, 28, 1, tzinfo=UTC)))
]


@pytest.mark.parametrize("seed", mostly_slow(range(4)))
def test_cronsim_gives_the_same_occurrences(seed: int) -> None:
    assert compare(CronsimWriter(seed), ask_cronsim, 1500, "UTC", ALWAYS) > 1450


@pytest.mark.parametrize("seed", mostly_slow(range(4)))
def test_croniter_gives_the_same_occurrences(seed: int) -> None:
    assert compare(CroniterWriter(seed), ask_croniter, 1000, "UTC", ALWAYS) > 950


@pytest.mark.parametrize("seed", mostly_slow(range(2)))
def test_cronsim_gives_the_same_occurrences_in_a_zone_away_from_changes(seed: int) -> None:
    assert compare(CronsimWriter(seed), ask_cronsim, 400, BERLIN, SEASONS) > 350


@pytest.mark.parametrize("seed", mostly_slow(range(2)))
def test_croniter_gives_the_same_occurrences_in_a_zone_away_from_changes(seed: int) -> None:
    assert compare(CroniterWriter(seed), ask_croniter, 300, BERLIN, SEASONS) > 250


# From a day and a half before each of Berlin's changes to just before it; answers go on for two months.
CHANGES = [
    (at - timedelta(hours=40), at - timedelta(hours=1), at + timedelta(days=60)) for at in (FORWARD, BACK)
]


class StarredWriter(CronsimWriter):
    """Writes what cronsim takes literally: six fields, or `*` at the start of the minute or the hour."""

    def text(self) -> str:
        words = super().text().split()
        if len(words) == 5 and not words[0].startswith("*"):
            words[1] = self.random.choice(("*", "*/2", "*/3"))
        return " ".join(words)


class TimedWriter(CronsimWriter):
    """Writes jobs at times of day, for which cronsim does as Debian's cron where the clocks change."""

    def text(self) -> str:
        day, month, weekday = super().text().split()[-3:]
        minute, hour = (
            str(self.random.randint(0, 59)),
            self.random.choice(("1", "2", "2-3", "0,2", "3", "1-5/2")),
        )
        return " ".join((minute, hour, day, month, weekday))


class HourlyWriter(CroniterWriter):
    """Writes jobs of every hour, which croniter runs through a clock change."""

    def text(self) -> str:
        *first, _hour, day, month, weekday = super().text().split()
        return " ".join((*first, "*", day, month, weekday))


def test_cronsim_is_as_literal_where_a_time_begins_with_a_star() -> None:
    assert compare(StarredWriter(1), ask_cronsim, 600, BERLIN, CHANGES) > 550


def test_cronsim_does_with_times_of_day_as_kron_does_with_next_and_first() -> None:
    same = compare(TimedWriter(1), ask_cronsim, 600, BERLIN, CHANGES, dst_gap="next", dst_repeat="first")
    assert same > 550


def test_croniter_is_as_literal_in_every_hour() -> None:
    assert compare(HourlyWriter(1), ask_croniter, 400, BERLIN, CHANGES) > 350


# --- where they differ -----------------------------------------------------------------------------

REFUSED, NONE = "refused", "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An expression, what Kron answers, and what one or both peers do; times are local, in 2026 or 2027.

    `zone` None asks Kron without naming a zone. `options` are croniter's; none means its defaults.
    """

    text: str
    kron: str
    cronsim: str | None = None
    croniter: str | None = None
    zone: str | None = "UTC"
    since: str = "2026-01-01"
    identity: str | None = None
    options: tuple[str, ...] = ()


DAILY = "01-02 00:00, 01-03 00:00, 01-04 00:00"
FRIDAYS = "01-30 00:00, 02-27 00:00, 03-27 00:00"
DIFFERENCES = {
    "D01": Difference(text="0 22-2 * * *", kron="01-01 01:00, 01-01 02:00, 01-01 22:00", cronsim=REFUSED),
    "D02": Difference(text="0 21-5/2 * * *", kron="01-01 01:00, 01-01 03:00, 01-01 05:00", cronsim=REFUSED,
        croniter="01-01 02:00, 01-01 04:00, 01-01 21:00"),
    "D03": Difference(text="0 9-9 * * *", kron="01-01 09:00, 01-02 09:00, 01-03 09:00",
        croniter="01-01 01:00, 01-01 02:00, 01-01 03:00"),
    "D04": Difference(text="0 0 5-5/10 * *", kron="01-05 00:00, 02-05 00:00, 03-05 00:00",
        cronsim="01-05 00:00, 01-15 00:00, 01-25 00:00", croniter="01-11 00:00, 01-21 00:00, 01-31 00:00"),
    "D05": Difference(text="0 23/7 * * *", kron="01-01 23:00, 01-02 23:00, 01-03 23:00",
        croniter="01-01 07:00, 01-01 14:00, 01-01 21:00"),
    "D06": Difference(text="0 0 * * 3/4", kron="01-07 00:00, 01-14 00:00, 01-21 00:00",
        cronsim="01-04 00:00, 01-07 00:00, 01-11 00:00"),
    "D07": Difference(text="0 0 * * monday", kron="01-05 00:00, 01-12 00:00, 01-19 00:00",
        cronsim=REFUSED, croniter=REFUSED),
    "D08": Difference(text="@daily", kron=DAILY, cronsim=REFUSED),
    "D09": Difference(text="CRON_TZ=Europe/Berlin 0 9 * * *", kron="01-01 08:00, 01-02 08:00, 01-03 08:00",
        cronsim=REFUSED, croniter=REFUSED, zone=None),
    "D10": Difference(text="H 3 * * *", kron="01-01 03:26, 01-02 03:26, 01-03 03:26", cronsim=REFUSED,
        croniter="01-01 03:24, 01-02 03:24, 01-03 03:24", identity="backup"),
    "D11": Difference(text="0 0 ? * 1", kron="01-05 00:00, 01-12 00:00, 01-19 00:00", cronsim=REFUSED),
    "D12": Difference(text="5 10 * * * *", kron="01-01 00:10:05, 01-01 01:10:05, 01-01 02:10:05",
        croniter="01-01 10:05:00, 01-01 10:05:01, 01-01 10:05:02"),
    "D13": Difference(text="0 0 9 * * 7", kron="01-04 09:00, 01-11 09:00, 01-18 09:00",
        croniter=REFUSED, options=("second_at_beginning",)),
    "D14": Difference(text="0 9 1 1 * 0 2026-2028", kron=REFUSED, cronsim=REFUSED,
        croniter="01-01 09:00, 01-01 09:00, 01-01 09:00"),
    "D15": Difference(text="0 0 */10 * 1", kron="05-11 00:00, 06-01 00:00, 08-31 00:00",
        croniter="01-05 00:00, 01-11 00:00, 01-12 00:00"),
    "D16": Difference(text="0 0 15,*/10 * 0-6", kron=DAILY,
        croniter="01-11 00:00, 01-15 00:00, 01-21 00:00", options=("implement_cron_bug",)),
    "D17": Difference(text="0 0 31 4 1-3", kron="04-01 00:00, 04-06 00:00, 04-07 00:00", croniter=NONE),
    "D18": Difference(text="0 0 LW * */6", kron=REFUSED, cronsim=NONE, croniter=REFUSED),
    "D19": Difference(text="0 0 30 2 *", kron=REFUSED, croniter=NONE),
    "D20": Difference(text="0 0 L-2 * *", kron="01-29 00:00, 02-26 00:00, 03-29 00:00",
        cronsim=REFUSED, croniter=REFUSED),
    "D21": Difference(text="0 0 L/2 * *", kron=REFUSED, croniter=REFUSED,
        cronsim="01-31 00:00, 02-28 00:00, 03-31 00:00"),
    "D22": Difference(text="0 0 LW * *", kron="01-30 00:00, 02-27 00:00, 03-31 00:00", croniter=REFUSED),
    "D23": Difference(text="0 0 15W * *", kron="01-15 00:00, 02-16 00:00, 03-16 00:00", cronsim=REFUSED),
    "D24": Difference(text="0 0 1,15W * *", kron="01-15 00:00, 02-01 00:00, 02-16 00:00",
        cronsim=REFUSED, croniter=REFUSED),
    "D25": Difference(text="0 0 30W 1-3 *", kron="01-30 00:00, 03-30 00:00, 01-29 00:00", cronsim=REFUSED,
        croniter="01-30 00:00, 02-27 00:00, 03-30 00:00"),
    "D26": Difference(text="0 0 15W * 1", kron="01-05 00:00, 01-12 00:00, 01-15 00:00", cronsim=REFUSED,
        croniter="01-15 00:00, 02-16 00:00, 03-16 00:00"),
    "D27": Difference(text="0 0 * * 5L", kron=FRIDAYS, croniter=REFUSED),
    "D28": Difference(text="0 0 * * L5", kron=REFUSED, cronsim=REFUSED, croniter=FRIDAYS),
    "D29": Difference(text="0 0 * * friL", kron=FRIDAYS, cronsim=REFUSED, croniter=REFUSED),
    "D30": Difference(text="0 0 * * 1,5#2", kron="01-05 00:00, 01-09 00:00, 01-12 00:00", croniter=REFUSED),
    "D31": Difference(text="0 0 * * 5,5#2", kron="01-02 00:00, 01-09 00:00, 01-16 00:00",
        croniter="01-09 00:00, 02-13 00:00, 03-13 00:00"),
    "D32": Difference(text="0 0 13 * 5#2", kron="01-09 00:00, 01-13 00:00, 02-13 00:00",
        croniter="01-09 00:00, 02-13 00:00, 03-13 00:00"),
    "D33": Difference(text="30 2 * * *", zone=BERLIN, since="2026-03-28",
        kron="03-28 02:30 CET, 03-30 02:30 CEST, 03-31 02:30 CEST",
        cronsim="03-28 02:30 CET, 03-29 03:00 CEST, 03-30 02:30 CEST",
        croniter="03-28 02:30 CET, 03-29 03:00 CEST, 03-30 02:30 CEST"),
    "D34": Difference(text="*/30 2 * * *", zone=BERLIN, since="2026-03-29",
        kron="03-30 02:00 CEST, 03-30 02:30 CEST, 03-31 02:00 CEST",
        croniter="03-29 03:00 CEST, 03-30 02:00 CEST, 03-30 02:30 CEST"),
    "D35": Difference(text="30 2 * * *", zone=BERLIN, since="2026-10-25",
        kron="10-25 02:30 CEST, 10-25 02:30 CET, 10-26 02:30 CET",
        cronsim="10-25 02:30 CEST, 10-26 02:30 CET, 10-27 02:30 CET"),
    "D36": Difference(text="30 2 * * *", zone=BERLIN, since="2026-10-25T02:15+01:00",
        kron="10-25 02:30 CET, 10-26 02:30 CET, 10-27 02:30 CET",
        cronsim="10-25 02:30 CEST, 10-26 02:30 CET, 10-27 02:30 CET"),
    "D37": Difference(text="@daily", identity="backup", kron=DAILY, cronsim=REFUSED,
        croniter="01-01 06:24:21, 01-02 06:24:21, 01-03 06:24:21"),
    "D38": Difference(text="0 0 29-L * *", kron=REFUSED, cronsim=REFUSED,
        croniter="01-29 00:00, 01-30 00:00, 01-31 00:00"),
    "D39": Difference(text="0 0 W15 * *", kron=REFUSED, cronsim=REFUSED,
        croniter="01-15 00:00, 02-16 00:00, 03-16 00:00"),
    "D40": Difference(text="0 0 * * MON-FRI#1", kron=REFUSED, cronsim=REFUSED,
        croniter="01-02 00:00, 01-05 00:00, 01-06 00:00"),
}  # fmt: skip


def shown(ask: Callable[[], Seconds], zone: str) -> str:
    """Write an answer as the table has it."""
    try:
        found = ask()
    except CroniterBadDateError:
        return NONE
    except (InputError, CronSimError, CroniterError):
        return REFUSED
    times = [datetime.fromtimestamp(second, zone_of(zone)) for second in found]
    form = "%m-%d %H:%M:%S" if any(time.second for time in times) else "%m-%d %H:%M"
    form += "" if zone == "UTC" else " %Z"
    return ", ".join(f"{time:{form}}" for time in times) or NONE


def asked(difference: Difference) -> dict[str, str]:
    """Query Kron and both peers for the first three times of an example."""
    zone = difference.zone or "UTC"
    since = datetime.fromisoformat(difference.since)
    since = since.astimezone(zone_of(zone)) if since.tzinfo else since.replace(tzinfo=zone_of(zone))
    options: dict[str, object] = dict.fromkeys(difference.options, True)
    options["hash_id"] = difference.identity

    def kron() -> Seconds:
        schedule = Schedule(difference.text, difference.zone, identity=difference.identity)
        return list(islice(seconds_between(schedule.plan, seconds_of(since) + 1, None), 3))

    def other() -> Seconds:
        times = croniter(difference.text, since, **options)
        return [round(times.get_next(float)) for _ in range(3)]

    return {
        "kron": shown(kron, zone),
        "cronsim": shown(lambda: ask_cronsim(difference.text, since, 3), zone),
        "croniter": shown(other, zone),
    }


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_known_difference_is_one(name: str) -> None:
    """Both results are those of the table; a peer without an entry agrees with Kron."""
    difference = DIFFERENCES[name]
    found = asked(difference)
    assert found == {
        "kron": difference.kron,
        "cronsim": difference.cronsim or difference.kron,
        "croniter": difference.croniter or difference.kron,
    }
    assert found["kron"] != found["cronsim"] or found["kron"] != found["croniter"]


ROW = re.compile(r"\| (D\d\d) \| `([^`]+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \| [^|]+\|")


def test_the_page_lists_the_same_differences_with_the_same_answers() -> None:
    rows = [ROW.match(line) for line in PAGE.read_text().splitlines() if re.match(r"\| D\d\d ", line)]
    assert None not in rows, "a row of the page does not have its six columns"
    listed = {row[1]: (row[2], *(cell.strip() for cell in row.groups()[2:5])) for row in rows if row}
    assert len(listed) == len(rows), "an id stands twice"
    assert listed == {
        name: (it.text, it.kron, it.cronsim or "as Kron", it.croniter or "as Kron")
        for name, it in DIFFERENCES.items()
    }
