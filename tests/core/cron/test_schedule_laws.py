"""The laws every schedule keeps in every zone, held against a reference that looks at every minute.

Around each change of the clocks from 2000 to 2040 expressions are drawn, seeded by zone and instant, so
that many of them match close by. Whatever fails says the zone, the change and the expression.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise
from random import Random
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kron.core.cron.schedule import Schedule, seconds_between
from kron.core.cron.walk import Plan
from tests.reference import (
    HOUR,
    MINUTE,
    Minutes,
    OffsetChange,
    epoch,
    local_text,
    neighbours,
    offset_changes,
)
from tests.strategies import ZONE_KEYS, law, seconds, strict_expressions, zones
from tests.tiers import mostly_slow

FIRST_YEAR, LAST_YEAR = 2000, 2040
# How far before and after what a change skips or repeats every minute is looked at: a midnight lies in it.
AROUND = 13 * HOUR
GAPS, REPEATS = ("skip", "next"), ("both", "first", "last")
OPTIONS = [(gap, repeat) for gap in GAPS for repeat in REPEATS]

# Every kind of change there is: at midnight and at other hours, by an hour, by half and by two, by a day,
# for good, several times a year, in both halves of the year, with odd offsets and on both edges of the day.
ZONES = [
    "Africa/Cairo", "Africa/Casablanca", "Africa/El_Aaiun", "Africa/Juba", "Africa/Khartoum",
    "Africa/Tripoli", "Africa/Tunis", "Africa/Windhoek", "America/Anchorage", "America/Araguaina",
    "America/Argentina/San_Luis", "America/Asuncion", "America/Bahia_Banderas", "America/Cancun",
    "America/Caracas", "America/Chihuahua", "America/Cuiaba", "America/Danmarkshavn",
    "America/Guatemala", "America/Havana", "America/Metlakatla", "America/Mexico_City",
    "America/Miquelon", "America/Montevideo", "America/New_York", "America/Noronha",
    "America/North_Dakota/Beulah", "America/Nuuk", "America/Port-au-Prince", "America/Resolute",
    "America/Santiago", "America/Sao_Paulo", "America/Scoresbysund", "America/St_Johns",
    "Antarctica/Casey", "Antarctica/Davis", "Antarctica/Macquarie", "Antarctica/Troll",
    "Antarctica/Vostok", "Asia/Amman", "Asia/Anadyr", "Asia/Baku", "Asia/Beirut", "Asia/Colombo",
    "Asia/Damascus", "Asia/Dhaka", "Asia/Dili", "Asia/Gaza", "Asia/Hovd", "Asia/Jerusalem",
    "Asia/Kathmandu", "Asia/Novosibirsk", "Asia/Pyongyang", "Asia/Tehran", "Asia/Ulaanbaatar",
    "Atlantic/Azores", "Atlantic/Stanley", "Australia/Adelaide", "Australia/Eucla",
    "Australia/Lord_Howe", "Europe/Berlin", "Europe/Chisinau", "Europe/Dublin", "Europe/Istanbul",
    "Europe/London", "Europe/Minsk", "Europe/Moscow", "Europe/Samara", "Europe/Volgograd",
    "Indian/Mauritius", "Pacific/Apia", "Pacific/Auckland", "Pacific/Bougainville", "Pacific/Chatham",
    "Pacific/Easter", "Pacific/Fakaofo", "Pacific/Fiji", "Pacific/Norfolk", "Pacific/Tongatapu", "UTC",
]  # fmt: skip


def plan_of(text: str, zone: str, *, gap: str = "skip", repeat: str = "both") -> Plan:
    return Schedule(text, zone, dialect="posix", dst_gap=gap, dst_repeat=repeat).plan


def changes_of(zone: str) -> list[OffsetChange]:
    """Return the changes of the years looked at."""
    return [change for change in offset_changes(zone, until=LAST_YEAR) if change.at >= epoch(FIRST_YEAR)]


def draw_expression(random: Random, zone: str, change: OffsetChange) -> str:
    """Draw an expression many of whose times lie around a change of the clocks."""
    wall = datetime.fromtimestamp(change.at + random.choice((-1, 0)), ZoneInfo(zone))
    hours = sorted({(wall.hour + random.randint(-2, 2)) % 24 for _ in range(random.randint(1, 4))})
    values = sorted(
        {random.choice((0, 1, 15, 29, 30, 45, 59, wall.minute)) for _ in range(random.randint(1, 3))}
    )
    near = wall + timedelta(days=random.randint(-1, 1))
    minute, hour = ",".join(map(str, values)), ",".join(map(str, hours))
    day, month, weekday = str(near.day), str(near.month), str(near.isoweekday() % 7)
    return random.choice(
        [
            f"{minute} {hour} * * *",
            f"{minute} {hour} * * *",
            f"{minute} * * * *",
            f"* {wall.hour} * * *",
            f"{minute} 0,23 * * *",
            f"0-59 {hours[0]}-{max(hours)} {day} * *",
            f"{minute} {hour} {day} {month} *",
            f"{minute} {hour} * {month} {weekday}",
            f"{minute} {hour} {day},{wall.day} * {weekday}",
            f"{minute} {hour} 1-31 * {weekday}",
            f"{minute} {hour} 28-31 {month} *",
        ]
    )


def assert_plan_agrees(plan: Plan, found: list[int], *, start: int, end: int, asked: list[int]) -> None:
    """Compare a plan with all that was found in `[start, end)`, as a whole and from single instants."""
    assert list(seconds_between(plan, start, end)) == found
    for instant in asked:
        prev, following = neighbours(found, instant)
        answer, answer_before = plan.next_after(instant), plan.prev_at_or_before(instant)
        assert answer is not None
        assert answer_before is not None
        assert answer == following or (following is None and answer >= end), f"next after {instant}"
        assert answer_before == prev or (prev is None and answer_before < start), f"prev at {instant}"


def instants_to_ask(random: Random, found: list[int], change: OffsetChange, *, reach: int) -> list[int]:
    """Return instants at, just before and just after matches and changes, and others, in any order."""
    near = [
        change.at,
        change.at + change.size,
        change.at - change.size,
        *random.sample(found, min(6, len(found))),
    ]
    asked = [instant + nudge for instant in near for nudge in (-1, 0, 1)]
    asked += [change.at + random.randint(-reach, reach - 1) for _ in range(6)]
    random.shuffle(asked)
    return [instant for instant in asked if change.at - reach <= instant < change.at + reach]


# --- the reference ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_next_prev_and_between_are_those_seen_by_looking_away_from_any_change(seed: int) -> None:
    random = Random(seed)
    for _ in range(10):
        zone, start = (
            random.choice(ZONE_KEYS),
            epoch(random.randrange(2000, 2040), random.randrange(1, 13), 14),
        )
        change = OffsetChange(start, 0, 0)
        text = draw_expression(random, zone, change)
        found = Minutes(zone, start - AROUND, start + AROUND).matches(text)
        asked = instants_to_ask(random, found, change, reach=AROUND)
        try:
            assert_plan_agrees(
                plan_of(text, zone), found, start=start - AROUND, end=start + AROUND, asked=asked
            )
        except AssertionError as cause:
            raise AssertionError(
                f"seed {seed}: {text!r} in {zone} around {local_text(start, zone)}"
            ) from cause


@pytest.mark.parametrize("zone", mostly_slow(ZONES, fast=8))
def test_next_prev_and_between_are_those_seen_by_looking_around_every_change(zone: str) -> None:
    for change in changes_of(zone):
        random = Random(f"{zone} {change.at}")
        reach = abs(change.size) + AROUND
        start, end = change.at - reach, change.at + reach
        seen = Minutes(zone, start, end)
        assert [gap.end for gap in seen.gaps] == [change.at] * (change.size > 0)
        for text in ("0,30 * * * *", *(draw_expression(random, zone, change) for _ in range(2))):
            found = seen.matches(text)
            asked = instants_to_ask(random, found, change, reach=reach)
            try:
                assert_plan_agrees(plan_of(text, zone), found, start=start, end=end, asked=asked)
            except AssertionError as cause:
                raise AssertionError(f"{text!r} in {zone} around {local_text(change.at, zone)}") from cause


@pytest.mark.parametrize("zone", mostly_slow(ZONES, fast=8))
def test_the_options_mean_what_the_reference_says_around_every_change(zone: str) -> None:
    for change in changes_of(zone):
        random = Random(f"options {zone} {change.at}")
        reach = abs(change.size) + 2 * HOUR
        start, end = change.at - reach, change.at + reach
        seen = Minutes(zone, start, end)
        for gap, repeat in OPTIONS:
            text = draw_expression(random, zone, change)
            found = seen.matches(text, gap=gap, repeat=repeat)
            asked = instants_to_ask(random, found, change, reach=reach)
            plan = plan_of(text, zone, gap=gap, repeat=repeat)
            try:
                assert_plan_agrees(plan, found, start=start, end=end, asked=asked)
            except AssertionError as cause:
                case = f"{text!r} in {zone} around {local_text(change.at, zone)}"
                raise AssertionError(f"{case}, dst_gap={gap}, dst_repeat={repeat}") from cause


def test_the_zones_looked_at_have_changes_of_every_kind() -> None:
    changes = [change for zone in ZONES for change in changes_of(zone)]
    sizes = {change.size / HOUR for change in changes}
    assert {1, -1, 0.5, -0.5, 2, -2, 24} <= sizes
    assert len(ZONES) >= 60
    assert len(changes) > 2000


def test_drawn_expressions_match_around_most_changes_and_in_many_gaps_and_folds() -> None:
    """The comparison is worth little if nothing happens where the clocks change."""
    hits = gap_hits = fold_hits = drawn = 0
    for zone in ("Europe/Berlin", "Australia/Lord_Howe", "America/Havana"):
        for change in changes_of(zone)[:30]:
            random = Random(f"{zone} {change.at}")
            reach = 3 * HOUR
            seen = Minutes(zone, change.at - reach, change.at + reach)
            for _ in range(5):
                text = draw_expression(random, zone, change)
                literal = seen.matches(text)
                drawn += 1
                hits += bool(literal)
                gap_hits += seen.matches(text, gap="next") != literal
                fold_hits += seen.matches(text, repeat="first") != literal
    assert hits > drawn / 2
    assert gap_hits > drawn / 10
    assert fold_hits > drawn / 10


# --- every zone ------------------------------------------------------------------------------------

PARTS = 12
SINCE, UNTIL = date(2024, 1, 1), date(2025, 1, 1)
TIMES = {"0 0 * * *": (0, 0), "30 2 * * *": (2, 30)}


def showings_of(day: date, time: tuple[int, int], zone: ZoneInfo) -> Iterator[int]:
    """Yield the instants at which a zone shows a wall time: none in a gap, two in a fold (PEP 495)."""
    wall = datetime(day.year, day.month, day.day, *time, tzinfo=zone)
    before, after = wall.utcoffset(), wall.replace(fold=1).utcoffset()
    assert before is not None
    assert after is not None
    local = wall.replace(tzinfo=UTC)
    if before >= after:
        yield int((local - before).timestamp())
    if before > after:
        yield int((local - after).timestamp())


@pytest.mark.parametrize("part", mostly_slow(range(PARTS)))
def test_a_daily_schedule_runs_at_every_showing_of_its_time_in_every_zone(part: int) -> None:
    days = [SINCE + timedelta(days=number) for number in range((UNTIL - SINCE).days)]
    for key in ZONE_KEYS[part::PARTS]:
        zone = ZoneInfo(key)
        for text, time in TIMES.items():
            expected = [instant for day in days for instant in showings_of(day, time, zone)]
            plan = plan_of(text, key)
            assert list(seconds_between(plan, expected[0], expected[-1] + 1)) == expected, (text, key)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", mostly_slow(["0 12 29 2 *", "15 1,2,3 * * 0", "0 0 1,15 * 1", "59 23 28-31 * *"])
)
def test_next_is_strictly_later_and_matches_through_four_years_in_every_zone(text: str) -> None:
    for key in ZONE_KEYS:
        plan, zone, schedule = plan_of(text, key), ZoneInfo(key), Schedule(text, key, dialect="posix")
        allowed = {
            (hour, minute)
            for hour in schedule.expression.hour.values
            for minute in schedule.expression.minute.values
        }
        instant, end = epoch(2024), epoch(2028)
        while instant < end:
            following = plan.next_after(instant)
            assert following is not None
            assert following > instant, (text, key, instant)
            local = datetime.fromtimestamp(following, zone)
            assert (local.hour, local.minute) in allowed, (text, key, instant)
            assert local.second == 0, (text, key, instant)
            instant = following


@pytest.mark.parametrize("part", mostly_slow(range(PARTS)))
def test_next_is_strictly_later_at_every_change_in_every_zone_under_every_option(part: int) -> None:
    """Asked in both showings of a repeated time and on both sides of a gap, answers never go back."""
    texts = ("* * * * *", "0,15,30,45 * * * *", "0 * * * *", "30 0-3,23 * * *", "0 0 * * *")
    for key in ZONE_KEYS[part::PARTS]:
        changes = [change for change in offset_changes(key, until=2028) if change.at >= epoch(2022)]
        for number, change in enumerate(changes):
            for text in texts:
                gap, repeat = OPTIONS[number % len(OPTIONS)]
                plan = plan_of(text, key, gap=gap, repeat=repeat)
                case = (key, change, text, gap, repeat)
                answers = []
                for shift in range(-2 * abs(change.size), 2 * abs(change.size) + 1, 7 * MINUTE):
                    instant = change.at + shift
                    following, prev = plan.next_after(instant), plan.prev_at_or_before(instant)
                    assert following is not None, case
                    assert prev is not None, case
                    assert prev <= instant < following, case
                    answers.append((prev, following))
                assert [prev for prev, _ in answers] == sorted(prev for prev, _ in answers), case
                assert [later for _, later in answers] == sorted(later for _, later in answers), case


# --- forward and backward --------------------------------------------------------------------------


@law(700)
@given(
    text=strict_expressions(),
    zone=zones(),
    instant=seconds(1850, 2200),
    gap=st.sampled_from(GAPS),
    repeat=st.sampled_from(REPEATS),
)
@example("0 0 29 2 *", "Europe/Berlin", epoch(2098), "skip", "both")
@example("0 12 30 12 *", "Pacific/Apia", epoch(2011, 12, 30, 10), "next", "first")
@example("30 2 * * *", "Europe/Berlin", epoch(2024, 3, 31, 1), "next", "last")
@example("30 2 * * *", "Europe/Berlin", epoch(2024, 10, 27, 1), "skip", "last")
def test_forward_and_backward_are_inverse(text: str, zone: str, instant: int, gap: str, repeat: str) -> None:
    plan = plan_of(text, zone, gap=gap, repeat=repeat)
    following, prev = plan.next_after(instant), plan.prev_at_or_before(instant)
    assert following is not None
    assert prev is not None
    assert prev <= instant < following
    assert plan.prev_at_or_before(following) == following
    assert plan.prev_at_or_before(following - 1) == prev
    assert plan.next_after(prev - 1) == prev
    assert plan.next_after(prev) == following


@law(120)
@given(text=strict_expressions(), zone=zones(), instant=seconds(1950, 2100), gap=st.sampled_from(GAPS))
def test_a_walk_back_meets_every_step_of_the_walk_forward(
    text: str, zone: str, instant: int, gap: str
) -> None:
    plan = plan_of(text, zone, gap=gap)
    forward = list(islice(seconds_between(plan, instant, None), 40))
    back = [forward[-1]]
    for _ in forward[1:]:
        prev = plan.prev_at_or_before(back[-1] - 1)
        assert prev is not None
        back.append(prev)
    assert back[::-1] == forward


@law(300)
@given(
    text=strict_expressions(),
    zone=zones(),
    instant=seconds(1950, 2100),
    others=st.lists(seconds(1950, 2100), max_size=6),
)
def test_an_answer_does_not_depend_on_what_was_asked_before(
    text: str, zone: str, instant: int, others: list[int]
) -> None:
    shared = plan_of(text, zone)
    fresh = Plan(shared.expression, shared.zone, "skip", "both")
    for other in others:
        shared.next_after(other)
        shared.prev_at_or_before(other)
    assert shared.next_after(instant) == fresh.next_after(instant)
    assert shared.prev_at_or_before(instant) == fresh.prev_at_or_before(instant)


# --- schedules finer than the change ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "step", "reach"),
    [
        pytest.param("* * * * *", MINUTE, 2 * HOUR, id="every minute", marks=pytest.mark.slow),
        pytest.param(
            "0,15,30,45 * * * *", 15 * MINUTE, AROUND, id="every quarter of an hour", marks=pytest.mark.slow
        ),
        pytest.param("0 * * * *", HOUR, AROUND, id="every hour"),
    ],
)
def test_real_time_steps_stay_even_through_every_change_that_is_a_multiple_of_them(
    text: str, step: int, reach: int
) -> None:
    """Neither a skipped nor a repeated hour stops or doubles what runs every hour or more often."""
    looked_at = 0
    for zone in ZONES:
        plan = plan_of(text, zone)
        for change in changes_of(zone):
            if change.size % step == 0:
                found = list(seconds_between(plan, change.at - reach, change.at + reach))
                steps = {later - instant for instant, later in pairwise(found)}
                assert steps == {step}, (zone, change)
                assert len(found) == 2 * reach // step, (zone, change)
                looked_at += 1
    assert looked_at > 2000


@pytest.mark.parametrize(
    ("day", "hours"),
    [(date(2024, 3, 31), 23), (date(2024, 10, 27), 25), (date(2024, 5, 5), 24)],
    ids=["spring", "autumn", "any other"],
)
def test_the_day_of_a_change_has_as_many_runs_as_it_has_minutes(day: date, hours: int) -> None:
    zone = ZoneInfo("Europe/Berlin")
    midnight, next_midnight = (
        int(datetime(later.year, later.month, later.day, tzinfo=zone).timestamp())
        for later in (day, day + timedelta(days=1))
    )
    found = list(seconds_between(plan_of("* * * * *", "Europe/Berlin"), midnight, next_midnight))
    assert len(found) == hours * 60
    assert found == list(range(midnight, next_midnight, MINUTE))
