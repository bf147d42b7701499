"""The comparisons of the cron part and the goals set for them."""

from collections.abc import Iterator, Mapping, Sequence

from bench import start
from bench.expression import ZONES
from bench.row import Goal, Kind, Row, shown
from kron.core.cron.dialect import DIALECTS, parse
from kron.core.errors import InvalidCronExpressionError

INTEGERS = "next occurrence, seconds since 1970"
DATETIMES = "next occurrence, aware datetimes"
PREVIOUS = "previous occurrence, seconds since 1970"
PARSE = "cold parse + next, all texts different"
PARSE_RANDOM = "cold parse + next, all texts different, random fields"
WORST = "worst single call over all expressions"
COLD_ZONE = "first call in a zone not seen before"
BULK = "next for 1,000,000 schedules that share 300 plans"

# The rate of a Rust binding that ignores zones; it was measured elsewhere and is not part of the run.
RUST_BINDING = 0.91e6
NEVER = "0 0 30 2 *"


def goals(rows: Sequence[Row]) -> Iterator[Goal]:
    """Compare the rows with the goals, in the order of the targets."""
    yield from _ratios(rows, INTEGERS, {"croniter": 50, "cronsim": 25}, zone=ZONES[0])
    yield from _ratios(rows, INTEGERS, {"croniter": 50, "cronsim": 25})
    yield _rate(rows, INTEGERS, RUST_BINDING)
    yield from _ratios(rows, DATETIMES, {"croniter": 35, "cronsim": 15}, zone=ZONES[0])
    yield from _ratios(rows, DATETIMES, {"croniter": 35, "cronsim": 15})
    yield _most(WORST, 10e-6, _seconds(rows, WORST, "kron"))
    yield _refusal()
    yield from _ratios(rows, PARSE, {"croniter": 20, "cronsim": 4})
    yield from _ratios(rows, PARSE_RANDOM, {"croniter": 20, "cronsim": 4})
    yield _most(BULK, 0.3, _seconds(rows, BULK, "kron"))
    yield _most(f"{BULK}, datetimes", 0.3, _seconds(rows, BULK, "kron, datetimes"))
    for name in (start.IMPORT, start.SCHEDULE):
        yield _most(f"{name}, beyond bare Python", 0.030, _beyond_bare(rows, name))
    yield _most(f"{start.NEXT}, the whole process", 0.200, _seconds(rows, start.TITLE, start.NEXT))


def _ratios(
    rows: Sequence[Row], title: str, least: Mapping[str, float], *, zone: str | None = None
) -> Iterator[Goal]:
    for contender, wanted in least.items():
        row = _row(rows, title, contender)
        found = None if row is None else row.ratio if zone is None else row.details.get(f"{zone} ratio")
        yield Goal(
            what=f"{title}, {zone}" if zone else title,
            wanted=f">= {wanted} x {contender}",
            measured="not measured" if found is None else f"{float(found):.1f} x",
            met=None if found is None else float(found) >= wanted,
        )


def _rate(rows: Sequence[Row], title: str, wanted: float) -> Goal:
    seconds = _seconds(rows, title, "kron")
    return Goal(
        what=title,
        wanted=f">= {shown(Kind.RATE, 1 / wanted)}, a Rust binding elsewhere",
        measured="not measured" if seconds is None else shown(Kind.RATE, seconds),
        met=None if seconds is None else 1 / seconds >= wanted,
    )


def _most(what: str, wanted: float, seconds: float | None) -> Goal:
    return Goal(
        what=what,
        wanted=f"<= {shown(Kind.TIME, wanted)}",
        measured="not measured" if seconds is None else shown(Kind.TIME, seconds),
        met=None if seconds is None else seconds <= wanted,
    )


def _refusal() -> Goal:
    refused = sum(_is_refused(dialect) for dialect in DIALECTS)
    return Goal(
        what=f"an expression that never matches, {NEVER}",
        wanted="refused while parsing",
        measured=f"refused by {refused} of {len(DIALECTS)} dialects",
        met=refused == len(DIALECTS),
    )


def _is_refused(dialect: str) -> bool:
    try:
        parse(NEVER, dialect)
    except InvalidCronExpressionError:
        return True
    return False


def _row(rows: Sequence[Row], title: str, contender: str) -> Row | None:
    return next((row for row in rows if row.title == title and row.contender == contender), None)


def _seconds(rows: Sequence[Row], title: str, contender: str) -> float | None:
    row = _row(rows, title, contender)
    return None if row is None else row.seconds


def _beyond_bare(rows: Sequence[Row], name: str) -> float | None:
    row = _row(rows, start.TITLE, name)
    beyond = None if row is None else row.details.get(start.BEYOND)
    return None if beyond is None else float(beyond)
