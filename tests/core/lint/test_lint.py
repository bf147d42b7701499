"""Lint: which code fires for what, at which line, with which dates, and a remedy that helps."""

import re
from collections import Counter
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from kron.core.cron.crontab import CrontabEntry, parse_crontab
from kron.core.cron.dialect import parse
from kron.core.cron.schedule import Schedule
from kron.core.errors import CronCalculationError, InputError, InvalidOptionError, NeverMatchesError
from kron.core.job.policy import Catchup, Policy
from kron.core.lint.finding import RULES, Code, LintFinding, Severity
from kron.core.lint.lint import LintContext, lint_entries, lint_job, lint_policy, lint_schedule, strict_text
from kron.core.time.instant import seconds_of
from tests.extended_strategies import Meaning, extended_expressions, extended_meanings
from tests.strategies import law, near_misses, strict_expressions, zones

NOW = seconds_of(datetime(2026, 1, 1, tzinfo=UTC))
BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"


def lint(text: str, timezone: str | None = None, **options: str) -> list[LintFinding]:
    return lint_schedule(text, LintContext(now=NOW, timezone=timezone, **options))


def codes(text: str, timezone: str | None = None, **options: str) -> list[Code]:
    return [finding.code for finding in lint(text, timezone, **options)]


def only(text: str, timezone: str | None = None, **options: str) -> LintFinding:
    [finding] = lint(text, timezone, **options)
    return finding


def lines(text: str) -> list[tuple[int | None, Code]]:
    found = lint_entries(parse_crontab(text), LintContext(now=NOW))
    return [(finding.line, finding.code) for finding in found]


# --- what is said ----------------------------------------------------------------------------------

NOT_POSIX = "which POSIX cron does not have"
THRICE = "2026-10-25 02:00 to 02:40 (3 times), 2027-10-31 02:00 to 02:40 (3 times)"
TWELVE = "2026-10-25 02:00 to 02:55 (12 times), 2027-10-31 02:00 to 02:55 (12 times)"
SAID = [
    ("61 * * * *", {}, Code.INVALID,
        'WRONG: minute field has the value 61, outside 0-59',
        "correct the minute field"),
    ("* * * *", {}, Code.INVALID,
        'WRONG: expression field must have 5 fields, or 6 with seconds first, got 4',
        "correct the expression"),
    ("H 3 * * *", {}, Code.INVALID,
        ('WRONG: minute field uses "H", which is derived from an identity; '
        "pass one (identity=, --identity)"),
        "give it an identity, or write numbers instead of H"),
    ("0 0 30 2 *", {}, Code.NEVER,
        'WRONG: expression field can never match: no year has a day 30 in month 2',
        "correct the day, the month or the weekday"),
    ("0 0 30 2 *", {"dialect": "posix"}, Code.NEVER,
        'WRONG: expression field can never match: no year has a day 30 in month 2',
        "correct the day, the month or the weekday"),
    ("30 2 * 3 0L", {"timezone": BERLIN}, Code.NEVER,
        "no time from 2026-01-01T00:00:00Z on matches in Europe/Berlin",
        "choose a time that the clocks do not skip every year"),
    ("0 9 * * *", {"timezone": "Europe/Berln"}, Code.ZONE,
        'unknown time zone "Europe/Berln"', "write Europe/Berlin or Europe/Dublin"),
    ("0 9 * * *", {"timezone": "Mars"}, Code.ZONE, 'unknown time zone "Mars"', "use an IANA name"),
    ("CRON_TZ=Asia/Tokyo 0 9 * * *", {"timezone": BERLIN}, Code.ZONE,
        "the expression has CRON_TZ=Asia/Tokyo, but the time zone option is Europe/Berlin",
        "remove one of the two"),
    ("0 0 * * 7", {"dialect": "posix"}, Code.NOT_STRICT,
        'WRONG: weekday field has the value 7, outside 0-6; use 0 for Sunday',
        "the equivalent in the posix dialect is 0 0 * * 0"),
    ("0 9 * * mon-fri", {"dialect": "posix"}, Code.NOT_STRICT,
        'WRONG: weekday field uses the name "mon", which POSIX cron does not have; write 1',
        "the equivalent in the posix dialect is 0 9 * * 1-5"),
    ("@hourly", {"dialect": "posix"}, Code.NOT_STRICT,
        'WRONG: expression field uses the macro "@hourly", which POSIX cron does not have; write 0 * * * *',
        "the equivalent in the posix dialect is 0 * * * *"),
    ("CRON_TZ=Asia/Tokyo 0 9 * * *", {"dialect": "posix"}, Code.NOT_STRICT,
        f"WRONG: expression field has a time zone prefix, {NOT_POSIX}; use the timezone option",
        "the equivalent in the posix dialect is 0 9 * * * with the time zone Asia/Tokyo"),
    ("0 0 L * *", {"dialect": "posix"}, Code.NOT_STRICT,
        'WRONG: day field uses the token "L", which POSIX cron does not have; list the days',
        "it has no equivalent in the posix dialect; use the extended dialect"),
    ("0 0 13 * 5", {}, Code.EITHER_DAY,
        "either day field is enough: it runs on day 13 of the month and also on weekday 5",
        "leave one of them *, or test the other in the command"),
    ("0 0 8-14 * 2,4", {}, Code.EITHER_DAY,
        "either day field is enough: it runs on day 8-14 of the month and also on weekday 2,4",
        "for both fields to match, write * for the day and 2#2,4#2 for the weekday"),
    ("0 0 8-14 * 2", {"dialect": "posix"}, Code.EITHER_DAY,
        "either day field is enough: it runs on day 8-14 of the month and also on weekday 2",
        "leave one of them *, or test the other in the command"),
    ("0 0 1-31 * 1", {}, Code.EITHER_DAY,
        "either day field is enough: day 1-31 or weekday 1 is every day",
        "leave one of them *, or test the other in the command"),
    ("0 0 */10 * 1", {}, Code.BOTH_DAYS,
        "the day field starts with *, so both day fields must match: day */10 and weekday 1",
        "for either field to be enough, write 1,11,21,31 for the day"),
    ("0 0 13 * */2", {}, Code.BOTH_DAYS,
        "the weekday field starts with *, so both day fields must match: day 13 and weekday */2",
        "for either field to be enough, write 0,2,4,6 for the weekday"),
    ("*/7 * * * *", {}, Code.UNEVEN,
        "minute */7 is uneven: from 56 to 0 it is 4, not 7",
        "use a step that divides 60, such as 6 or 10, or list the minutes"),
    ("0 */5 * * *", {}, Code.UNEVEN,
        "hour */5 is uneven: from 20 to 0 it is 4, not 5",
        "use a step that divides 24, such as 4 or 6, or list the hours"),
    ("20/15 * * * *", {}, Code.UNEVEN,
        "minute 20/15 is uneven: from 50 to 20 it is 30, not 15",
        "start before 15, or write the end of the range"),
    ("0 0 */2 * *", {}, Code.UNEVEN,
        "day */2 restarts each month, so the interval before day 1 differs",
        "list the days; cron does not count across months"),
    ("*/90 * * * *", {}, Code.IDLE_STEP,
        "the step in minute */90 has no effect: only 0 matches", "write 0, or a smaller step"),
    ("30 2 * * *", {"timezone": BERLIN, "dst_repeat": "first"}, Code.LOST,
        "runs are skipped in Europe/Berlin when the clocks go forward: 2026-03-29 02:30, 2027-03-28 02:30",
        'set dst_gap to "next", or choose a time that is not skipped'),
    ("*/20 2 * * *", {"timezone": BERLIN, "dst_gap": "next"}, Code.DOUBLED,
        f"runs twice in Europe/Berlin when the clocks go back: {THRICE}",
        'set dst_repeat to "first", or choose a time that is not repeated'),
    ("*/5 * * * *", {"timezone": BERLIN, "dst_repeat": "first"}, Code.SILENT,
        f"runs more often than hourly, but pauses when the clocks go back in Europe/Berlin: {TWELVE}",
        'set dst_repeat to "both"'),
    ("*/5 * * * *", {"dst_repeat": "last"}, Code.SILENT,
        "runs more often than hourly, but pauses when the clocks go back", 'set dst_repeat to "both"'),
    ("* 2 * * *", {}, Code.FLOOD,
        "* runs every minute of hour 2", "for one run write 0 2 * * *, or 0-59 to mean it"),
    ("* 5 2 * * *", {}, Code.FLOOD,
        "* runs every second of minute 5", "for one run write 0 5 2 * * *, or 0-59 to mean it"),
    ("*/10 * * * * *", {}, Code.SUB_MINUTE,
        "runs 6 times in each minute that matches", "make sure that the job and its target can handle it"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "options", "code", "message", "remedy"), SAID)
def test_a_finding_says_what_is_wrong_and_what_to_do(
    text: str, options: dict[str, str], code: Code, message: str, remedy: str
) -> None:
    """In the table WRONG stands for the words that every refusal of the parser begins with."""
    message = message.replace("WRONG", f'Invalid cron expression "{text}"')
    found = [finding for finding in lint(text, **options) if finding.code is code]
    assert [(finding.message, finding.remedy) for finding in found] == [(message, remedy)]
    assert (found[0].severity, found[0].expression, found[0].line) == (RULES[code].severity, text, None)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("0 9 * * 1-5", {}),
        ("0 9 * * *", {"timezone": BERLIN}),
        ("*/15 * * * *", {"timezone": BERLIN}),
        ("0 * * * *", {"timezone": NEW_YORK}),
        ("*/7 9 * * *", {}),
        ("*/20,50 * * * *", {}),
        ("10-50/20 * * * *", {}),
        ("*/1 * * * *", {}),
        ("0 */5 1 * *", {}),
        ("0 0 */2 3 *", {}),
        ("0 0 1-31/1 * *", {}),
        ("0 0 13 * *", {}),
        ("0 0 13 * */1", {}),
        ("0 0 1-31 * 0-6", {}),
        ("0-59 2 * * *", {}),
        ("* 2-4 * * *", {}),
        ("30 2 * * *", {"timezone": BERLIN, "dst_gap": "next", "dst_repeat": "last"}),
        ("30 2 * * 1", {"timezone": BERLIN}),
        ("30 2 * * *", {"timezone": "Asia/Tokyo"}),
        ("0 * * * *", {"timezone": BERLIN, "dst_repeat": "first"}),
        ("30 * * * * *", {}),
        ("H H * * *", {"identity": "backup"}),
        ("0 0 29 2 *", {}),
        ("0 0 * * 5#5", {}),
        ("0,30 9 1 1,7 *", {"dialect": "posix"}),
    ],
)
def test_nothing_is_said_about_what_is_well(text: str, options: dict[str, str]) -> None:
    assert lint(text, **options) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("0 * * * *", [], id="an hour apart it is a rate, which runs on"),
        pytest.param("0 */2 * * *", [Code.LOST, Code.DOUBLED], id="two hours apart it is not"),
    ],
)
def test_a_rate_is_no_more_than_an_hour_apart(text: str, found: list[Code]) -> None:
    assert codes(text, BERLIN) == found


def test_several_findings_come_together_in_the_order_of_their_codes() -> None:
    found = codes("*/7 */5 13 * 5 ", BERLIN)
    assert found == sorted(found)
    assert set(found) == {Code.EITHER_DAY, Code.UNEVEN}
    wrong_twice = codes("CRON_TZ=Europe/Berln 61 * * * *", "Mars")
    assert Counter(wrong_twice) == {Code.INVALID: 1, Code.ZONE: 3}


def test_what_else_is_wrong_is_said_where_the_zone_is_wrong() -> None:
    assert codes("0 0 13 * 5", "Mars") == [Code.ZONE, Code.EITHER_DAY]


@pytest.mark.parametrize(
    ("name", "value"), [("dialect", "quartz"), ("dst_gap", "run"), ("dst_repeat", "twice")]
)
def test_a_setting_checks_its_choices(name: str, value: str) -> None:
    with pytest.raises(InvalidOptionError):
        LintContext(now=NOW, **{name: value})


def test_every_code_has_a_rule_and_its_number() -> None:
    assert list(RULES) == list(Code)
    assert [code.value for code in Code] == [f"KRON{number:03}" for number in range(1, len(Code) + 1)]


# --- crontabs --------------------------------------------------------------------------------------


def test_all_findings_of_a_crontab_come_at_once_by_line() -> None:
    text = "# mine\n0 0 13 * 5 a\nMAILTO=x\n61 * * * * b\nno entry\n* 2 * * * c\n0 9 * * * d\n"
    assert lines(text) == [(2, Code.EITHER_DAY), (4, Code.INVALID), (5, Code.INVALID), (6, Code.FLOOD)]


def test_a_wrong_zone_is_reported_once_where_it_is_assigned() -> None:
    text = "CRON_TZ=Mars\n0 9 * * * a\n0 10 * * * b\nCRON_TZ=Venus 0 9 * * * c\n"
    assert lines(text) == [(1, Code.ZONE), (4, Code.ZONE)]


def test_the_zone_in_force_decides_what_the_clocks_do() -> None:
    text = "30 2 * * * a\nCRON_TZ=Europe/Berlin\n30 2 * * * b\nCRON_TZ=America/New_York 30 2 * * * c\n"
    assert lines(text) == [(3, Code.LOST), (3, Code.DOUBLED), (4, Code.LOST)]


@pytest.mark.parametrize(
    ("text", "repeated"),
    [
        pytest.param("0 0 * * 7 a\n@weekly a\n0 0 * * sun a\n", {2: 1, 3: 1}, id="however it is written"),
        pytest.param("0 9 * * * a\n0 9 * * * b\n", {}, id="another command"),
        pytest.param("0 9 * * * a\nCRON_TZ=UTC 0 9 * * * a\n", {2: 1}, id="the same zone, named"),
        pytest.param("0 9 * * * a\nCRON_TZ=Asia/Tokyo\n0 9 * * * a\n", {}, id="another zone"),
        pytest.param("61 * * * * a\n61 * * * * a\n", {}, id="two that are no schedules"),
    ],
)
def test_a_line_that_repeats_another_names_it(text: str, repeated: dict[int, int]) -> None:
    found = lint_entries(parse_crontab(text), LintContext(now=NOW))
    told = {it.line: int(it.message.rpartition(" ")[2]) for it in found if it.code is Code.DUPLICATE}
    assert told == repeated


def test_lines_of_different_users_are_no_repetition() -> None:
    text = "0 9 * * * root a\n0 9 * * * www a\n0 9 * * * root a\n"
    found = lint_entries(parse_crontab(text, has_user=True), LintContext(now=NOW))
    assert [(finding.line, finding.code) for finding in found] == [(3, Code.DUPLICATE)]


@pytest.mark.parametrize(
    ("text", "has_user", "taken"),
    [
        ("0 30 2 1 1 * /bin/run", False, 'five fields are read, so "*" is taken for the command'),
        ("0 30 2 1 1 1-5 /bin/run", False, 'five fields are read, so "1-5" is taken for the command'),
        ("0 30 2 1 1 * root /bin/run", True, 'five fields are read, so "*" is taken for the user'),
        ("30 2 1 1 1 7z a", False, None),
        ("30 2 1 1 1 root 7z", True, None),
    ],
)
def test_a_sixth_field_before_a_command_is_told(text: str, has_user: bool, taken: str | None) -> None:
    found = lint_entries(parse_crontab(text, has_user=has_user), LintContext(now=NOW))
    told = [finding.message for finding in found if finding.code is Code.EXTRA_FIELD]
    assert told == ([taken] if taken else [])


def test_a_jobs_schedule_is_judged_under_its_own_setting_at_its_own_lines() -> None:
    entry = CrontabEntry(line=3, expression="30 2 * * *", timezone="Mars", zone_line=4, raw="")
    [finding] = lint_job(entry, LintContext(now=NOW, timezone="Mars"))
    assert (finding.line, finding.code, finding.expression) == (4, Code.ZONE, "Mars")
    found = lint_job(entry, LintContext(now=NOW, timezone=BERLIN, dst_gap="next"))
    assert [(finding.line, finding.code) for finding in found] == [(3, Code.DOUBLED)]


# --- laws ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", range(2, 71))
def test_a_step_of_minutes_is_uneven_where_it_does_not_divide_the_hour(step: int) -> None:
    wanted = [Code.IDLE_STEP] if step > 59 else [Code.UNEVEN] if 60 % step else []
    assert codes(f"*/{step} * * * *") == wanted


@pytest.mark.parametrize("step", range(2, 31))
def test_a_step_of_hours_is_uneven_where_it_does_not_divide_the_day(step: int) -> None:
    wanted = [Code.IDLE_STEP] if step > 23 else [Code.UNEVEN] if 24 % step else []
    assert codes(f"0 */{step} * * *") == wanted


# Which minutes of the day a zone's changes skip and repeat, from the law of the land.
CHANGED = [
    pytest.param(BERLIN, range(120, 180), range(120, 180), id="Berlin"),
    pytest.param(NEW_YORK, range(120, 180), range(60, 120), id="New York"),
    pytest.param(LORD_HOWE, range(120, 150), range(90, 120), id="Lord Howe, by half an hour"),
    pytest.param("Asia/Kolkata", range(0), range(0), id="Kolkata, never"),
]


@pytest.mark.parametrize(("zone", "skipped", "repeated"), CHANGED)
def test_a_daily_time_is_lost_or_doubled_exactly_where_the_clocks_change(
    zone: str, skipped: range, repeated: range
) -> None:
    for minute in range(0, 300, 5):
        text = f"{minute % 60} {minute // 60} * * *"
        wanted = [Code.LOST] * (minute in skipped) + [Code.DOUBLED] * (minute in repeated)
        assert codes(text, zone) == wanted, text


@given(zones(), st.integers(0, 1439))
@law(150)
def test_the_dates_named_are_those_on_which_a_time_is_not_there_or_there_twice(
    zone: str, minute: int
) -> None:
    """Walk two years day by day with the standard library, and count how often each wall time comes."""
    said = {
        Code.LOST: dates_in(zone, minute, Code.LOST),
        Code.DOUBLED: dates_in(zone, minute, Code.DOUBLED),
    }
    tzinfo = Schedule("* * * * *", zone).plan.zone.tzinfo
    wall = datetime(2026, 1, 2, minute // 60, minute % 60)
    seen: dict[Code, list[date]] = {Code.LOST: [], Code.DOUBLED: []}
    while wall < datetime(2027, 12, 31):
        first, second = (wall.replace(tzinfo=tzinfo, fold=fold) for fold in (0, 1))
        if first.utcoffset() != second.utcoffset():
            there = first.astimezone(UTC).astimezone(tzinfo).replace(tzinfo=None) == wall
            seen[Code.DOUBLED if there else Code.LOST].append(wall.date())
        wall += timedelta(days=1)
    assert said == seen


def dates_in(zone: str, minute: int, code: Code) -> list[date]:
    found = [it for it in lint(f"{minute % 60} {minute // 60} * * *", zone) if it.code is code]
    return [date.fromisoformat(text) for it in found for text in re.findall(r"\d{4}-\d\d-\d\d", it.message)]


@given(extended_expressions() | near_misses(), st.sampled_from(["extended", "posix"]))
@example("30 2 29 3 */7", "extended")
@law(200)
def test_errors_are_found_exactly_where_there_is_no_schedule_with_a_time(text: str, dialect: str) -> None:
    errors = [it for it in lint(text, dialect=dialect) if it.severity is Severity.ERROR]
    try:
        Schedule(text, dialect=dialect).next_after(datetime(2026, 1, 1, tzinfo=UTC))
    except (InputError, CronCalculationError):
        assert errors
    else:
        assert errors == []


@given(extended_meanings())
@law(300)
def test_a_strict_equivalent_matches_the_same_times(meaning: Meaning) -> None:
    try:
        expression = parse(meaning.text)
    except NeverMatchesError:
        assume(False)
    strict = strict_text(expression)
    if strict is None:
        return
    other = parse(strict, "posix")
    assert (other.minute.mask, other.hour.mask) == (expression.minute.mask, expression.hour.mask)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for year in range(4):
        after = start.replace(year=2026 + year)
        assert Schedule(strict, dialect="posix").next_after(after) == Schedule(meaning.text).next_after(after)
    days = (date(2024, 1, 1) + timedelta(number) for number in range(366))
    for day in days:
        at = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(seconds=1)
        found = Schedule(strict, dialect="posix").next_after(at)
        assert (found.date() == day) == meaning.matches(day)


@given(strict_expressions())
@law(150)
def test_a_strict_expression_is_its_own_equivalent(text: str) -> None:
    strict = strict_text(parse(text, "posix"))
    assert strict is not None
    for year in range(2000, 2028):
        day = date(year, 1, 1).toordinal() - date(1970, 1, 1).toordinal()
        assert parse(strict, "posix").days.year_from(day) == parse(text, "posix").days.year_from(day)
    assert strict_text(parse(strict, "posix")) == strict


@given(
    st.text(max_size=60) | extended_expressions(), st.text(max_size=9), st.sampled_from(["extended", "posix"])
)
@example("TZ=\x00 * * * * *", "", "extended")
@example("\ud800 * * * *", "Mars", "posix")
@law(200)
def test_any_text_can_be_checked(text: str, zone: str, dialect: str) -> None:
    setting = LintContext(now=NOW, timezone=zone or None, dialect=dialect)
    for finding in [*lint_schedule(text, setting), *lint_entries(parse_crontab(text), setting)]:
        assert finding.message
        assert finding.remedy
        assert finding.severity is RULES[finding.code].severity


@pytest.mark.parametrize(
    "text", ["0 0 */10 * 1", "0 0 13 * */2", "0 0 */10 * */2", "0 0 */10,L * 1", "0 0 5 * */3,5L"]
)
def test_the_remedy_for_both_days_makes_either_enough(text: str) -> None:
    remedy = only(text).remedy
    words = text.split()
    for values, field in re.findall(r"(\S+) for the (day|weekday)", remedy):
        words[{"day": 2, "weekday": 4}[field]] = values
    meant, written = parse(" ".join(words)), parse(text)
    assert meant.either
    assert [it.values for it in meant.fields] == [it.values for it in written.fields]
    assert [it.marks for it in meant.fields] == [it.marks for it in written.fields]


@pytest.mark.parametrize(
    ("first", "second"),
    [("0 0 * * *", "0 0 1-31 * 0-6"), ("0 0 */31 * *", "0 0 1 * *"), ("0 0 1 * ?", "0 0 1 * *")],
)
def test_equal_times_are_seen_however_the_fields_are_written(first: str, second: str) -> None:
    assert (2, Code.DUPLICATE) in lines(f"{first} /opt/a\n{second} /opt/a\n")


def test_fields_are_quoted_as_they_were_written() -> None:
    messages = {finding.code: finding.message for finding in lint("0 0 13 * */100")}
    assert messages[Code.BOTH_DAYS].endswith("both day fields must match: day 13 and weekday */100")
    assert "day 1 of the month and also on weekday mon-fri" in only("0 0 1 * mon-fri").message


MISSES = "a start that is one second late is missed"
POINTLESS = (
    "catchup all starts nothing after an outage: a period it missed is at least 1m late, "
    "and the deadline is 30s"
)


@pytest.mark.parametrize(
    ("policy", "named", "messages"),
    [
        (Policy(), (), [f"the deadline is 0s, the default of a job that names none: {MISSES}"]),
        (Policy(deadline=timedelta(0)), ("deadline",), [f"the deadline is 0s: {MISSES}"]),
        (Policy(deadline=timedelta(seconds=1)), ("deadline",), []),
        (Policy(deadline=None, catchup=Catchup.ALL), ("deadline", "catchup"), []),
        (Policy(deadline=timedelta(seconds=30), catchup=Catchup.ALL), ("deadline", "catchup"), [POINTLESS]),
        (Policy(deadline=timedelta(minutes=10), catchup=Catchup.ALL), ("deadline", "catchup"), []),
    ],
)
def test_a_deadline_that_misses_a_late_start_or_makes_catch_up_pointless_is_pointed_out(
    policy: Policy, named: tuple[str, ...], messages: list[str]
) -> None:
    assert [remark.message for remark in lint_policy(policy, named)] == messages
