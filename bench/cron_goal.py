"""The comparisons of the cron part and the goals set for them."""

from collections.abc import Iterator, Mapping, Sequence

from bench import start
from bench.expression import ZONES
from bench.goal import NOT_MEASURED, at_least, at_most, cost_of, detail_of, row_of
from bench.row import Goal, Row
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

# The rate of a Rust binding that ignores zones, measured on another machine and not part of the run.
RUST_BINDING = 0.91e6
NEVER = "0 0 30 2 *"


def goals(rows: Sequence[Row]) -> Iterator[Goal]:
    """Compare the rows with the goals, in the order of the targets."""
    yield from _ratios(rows, INTEGERS, {"croniter": 50, "cronsim": 25}, zone=ZONES[0])
    yield from _ratios(rows, INTEGERS, {"croniter": 50, "cronsim": 25})
    yield at_least(
        INTEGERS, RUST_BINDING, cost_of(rows, INTEGERS, "kron"), remark=", a Rust binding elsewhere"
    )
    yield from _ratios(rows, DATETIMES, {"croniter": 35, "cronsim": 15}, zone=ZONES[0])
    yield from _ratios(rows, DATETIMES, {"croniter": 35, "cronsim": 15})
    yield at_most(WORST, 10e-6, cost_of(rows, WORST, "kron"))
    yield _refusal()
    yield from _ratios(rows, PARSE, {"croniter": 20, "cronsim": 4})
    yield from _ratios(rows, PARSE_RANDOM, {"croniter": 20, "cronsim": 4})
    yield at_most(BULK, 0.3, cost_of(rows, BULK, "kron"))
    yield at_most(f"{BULK}, datetimes", 0.3, cost_of(rows, BULK, "kron, datetimes"))
    for name in (start.IMPORT, start.SCHEDULE):
        yield at_most(f"{name}, beyond bare Python", 0.030, detail_of(rows, start.TITLE, name, start.BEYOND))
    yield at_most(f"{start.NEXT}, the whole process", 0.200, cost_of(rows, start.TITLE, start.NEXT))


def _ratios(
    rows: Sequence[Row], title: str, least: Mapping[str, float], *, zone: str | None = None
) -> Iterator[Goal]:
    for contender, wanted in least.items():
        row = row_of(rows, title, contender)
        ratio = None if row is None else row.ratio if zone is None else row.details.get(f"{zone} ratio")
        yield Goal(
            what=f"{title}, {zone}" if zone else title,
            wanted=f">= {wanted} x {contender}",
            measured=NOT_MEASURED if ratio is None else f"{float(ratio):.1f} x",
            met=None if ratio is None else float(ratio) >= wanted,
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
