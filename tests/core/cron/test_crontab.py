"""Crontabs as values: which lines are entries, what belongs to each, and which zone is in force."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kron.core.cron.crontab import CrontabEntry, command_and_input, parse_crontab
from tests.strategies import law, strict_expressions

NOON = "0 12 * * *"


def only(text: str, *, has_user: bool = False) -> CrontabEntry:
    [entry] = parse_crontab(text, has_user=has_user)
    return entry


@pytest.mark.parametrize(
    ("line", "expression", "command"),
    [
        pytest.param("0 12 * * * /bin/run", NOON, "/bin/run", id="five fields and a command"),
        pytest.param("  0\t12 *  * * \t/bin/run", NOON, "/bin/run", id="any blanks between fields"),
        pytest.param("0 12 * * * a  b\t c", NOON, "a  b\t c", id="the command's own blanks stay"),
        pytest.param("0 12 * * * date +\\%d%in", NOON, "date +\\%d%in", id="percent signs stay"),
        pytest.param("0 12 * * * run # now", NOON, "run # now", id="no comment behind a command"),
        pytest.param("0 12 * * * A=1 run", NOON, "A=1 run", id="an assignment in a command"),
        pytest.param("0 12 * * * /bin/run\r", NOON, "/bin/run", id="a Windows line end"),
        pytest.param("0 12 * * *", NOON, "", id="no command"),
        pytest.param("@daily /bin/run now", "@daily", "/bin/run now", id="macro"),
        pytest.param("@daily", "@daily", "", id="macro alone"),
        pytest.param("*/10 * * * * *", "*/10 * * * * *", "", id="six fields"),
        pytest.param("0 0 12 * * mon-fri", "0 0 12 * * mon-fri", "", id="six fields with names"),
        pytest.param("0 H 12 * * *", "0 H 12 * * *", "", id="six fields with H"),
        pytest.param("0 0 12 * * 8", "0 0 12 * *", "8", id="six words, the last of them no field"),
        pytest.param("0 0 12 * * * run", "0 0 12 * *", "* run", id="six fields and a command"),
        pytest.param("0 25 * * * run", "0 25 * * *", "run", id="a wrong field"),
        pytest.param("hello world", "hello world", "", id="no entry at all"),
        pytest.param("0 12 * *", "0 12 * *", "", id="a field too few"),
    ],
)
def test_a_line_is_read_as(line: str, expression: str, command: str) -> None:
    entry = only(line)
    assert (entry.expression, entry.command, entry.user, entry.timezone) == (expression, command, None, None)
    assert entry.raw == line.removesuffix("\r")


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("", id="empty"),
        pytest.param(" \t", id="blank"),
        pytest.param("# 0 12 * * * run", id="comment"),
        pytest.param("  # 0 12 * * * run", id="comment after blanks"),
        pytest.param("MAILTO=root", id="assignment"),
        pytest.param("MAILTO = root and more words than five", id="assignment with blanks"),
        pytest.param("'MAIL TO'=\"\"", id="quoted name"),
        pytest.param("CRON_TZ=Europe/Berlin", id="zone"),
        pytest.param('tz = "Europe/Berlin" ', id="zone, small and quoted"),
        pytest.param("CRON_TZ=", id="empty zone"),
    ],
)
def test_a_line_is_no_entry(line: str) -> None:
    assert parse_crontab(f"{line}\n") == []


@pytest.mark.parametrize(
    ("line", "user", "command"),
    [
        pytest.param("0 12 * * * root /bin/run now", "root", "/bin/run now", id="user and command"),
        pytest.param("@daily root /bin/run", "root", "/bin/run", id="macro"),
        pytest.param("0 12 * * * root", "root", "", id="no command"),
        pytest.param("0 12 * * *", None, "", id="neither"),
        pytest.param("0 0 12 * * 5", "5", "", id="six words are never six fields"),
    ],
)
def test_a_system_crontab_has_a_user(line: str, user: str | None, command: str) -> None:
    entry = only(line, has_user=True)
    assert (entry.user, entry.command) == (user, command)


@pytest.mark.parametrize(
    ("line", "at_boot"),
    [("@reboot run", True), ("@Reboot", True), ("@rebooted run", False), (f"{NOON} @reboot", False)],
)
def test_what_runs_at_boot_is_an_entry_without_a_time(line: str, at_boot: bool) -> None:
    assert only(line).at_boot is at_boot


def test_lines_are_counted_from_one_whatever_they_hold() -> None:
    text = f"\ufeff# comment\n\nMAILTO=x\n{NOON} a\n\n{NOON} b\n"
    assert [(entry.line, entry.command) for entry in parse_crontab(text)] == [(4, "a"), (6, "b")]


def test_only_line_feeds_end_lines() -> None:
    assert only(f"{NOON} echo a\x0bb\x85c\u2028d").command == "echo a\x0bb\x85c\u2028d"


ZONES = f"""\
{NOON} none
TZ=Asia/Tokyo
{NOON} by TZ
CRON_TZ=Europe/Berlin
{NOON} by CRON_TZ
TZ=Asia/Seoul
{NOON} still by CRON_TZ
CRON_TZ=
{NOON} by TZ again
CRON_TZ=America/New_York {NOON} by its own
CRON_TZ=UTC @daily by its own too
{NOON} by TZ as before
"""


def test_the_zone_in_force_is_the_lines_own_then_cron_tz_then_tz() -> None:
    found = [(entry.command, entry.timezone, entry.zone_line) for entry in parse_crontab(ZONES)]
    assert found == [
        ("none", None, None),
        ("by TZ", "Asia/Tokyo", 2),
        ("by CRON_TZ", "Europe/Berlin", 4),
        ("still by CRON_TZ", "Europe/Berlin", 4),
        ("by TZ again", "Asia/Seoul", 6),
        ("by its own", "America/New_York", None),
        ("by its own too", "UTC", None),
        ("by TZ as before", "Asia/Seoul", 6),
    ]


@pytest.mark.parametrize(
    ("assignment", "zone"),
    [
        ("CRON_TZ=Europe/Berlin", "Europe/Berlin"),
        ("CRON_TZ = 'Europe/Berlin'", "Europe/Berlin"),
        ('"CRON_TZ"="Europe/Berlin"', "Europe/Berlin"),
        ("cron_tz=Europe/Berlin", "Europe/Berlin"),
        ("CRON_TZ=Europe/Berlin # ours", "Europe/Berlin # ours"),
    ],
)
def test_a_zone_may_be_quoted_but_not_followed_by_a_comment(assignment: str, zone: str) -> None:
    assert only(f"{assignment}\n{NOON} run").timezone == zone


def test_a_zone_before_too_few_fields_is_an_entry_that_says_so() -> None:
    entry = only("CRON_TZ=Europe/Berlin 0 12 * run")
    assert (entry.expression, entry.timezone) == ("CRON_TZ=Europe/Berlin 0 12 * run", "Europe/Berlin")


@given(strict_expressions(), st.text("abc /%*=#\t", min_size=1).map(str.strip).filter(bool))
@law(200)
def test_fields_and_command_come_back_as_written(expression: str, command: str) -> None:
    entry = only(f"{expression} {command} end")
    assert (entry.expression, entry.command) == (" ".join(expression.split()), f"{command} end")


@given(st.text(), st.booleans())
@example('=\n==\n\'=\n""=\nTZ', True)
@example("@\n@ x\n\x00 * * * *", False)
@law(300)
def test_any_text_is_read(text: str, has_user: bool) -> None:
    entries = parse_crontab(text, has_user=has_user)
    lines = text.removeprefix("\ufeff").split("\n")
    assert [lines[entry.line - 1].removesuffix("\r") for entry in entries] == [entry.raw for entry in entries]
    assert [entry.line for entry in entries] == sorted({entry.line for entry in entries})
    assert all(entry.expression for entry in entries)


@pytest.mark.parametrize(
    ("text", "command", "given_input"),
    [
        ("run", "run", None),
        ("run%", "run", None),
        ("mail joe%Joe,%%bye", "mail joe", "Joe,\n\nbye\n"),
        ("run%a%", "run", "a\n"),
        (r"date +\%d", "date +%d", None),
        (r"echo a\\%b", r"echo a\\", "b\n"),
        (r"run%a\%b\c\\%d", "run", "a%b\\c\\%d\n"),
    ],
)
def test_percent_signs_end_a_command_and_the_lines_of_its_input(
    text: str, command: str, given_input: str | None
) -> None:
    assert command_and_input(text) == (command, given_input)


def test_an_entry_has_the_variables_assigned_before_it() -> None:
    text = f"A=1\n{NOON} x\n'B C' = \"a b \"\nA = 2 3 \n{NOON} y\n"
    assert [entry.variables for entry in parse_crontab(text)] == [
        (("A", "1"),),
        (("A", "2 3"), ("B C", "a b ")),
    ]


def test_text_after_a_quoted_value_is_no_assignment() -> None:
    assert only('A="x" y').expression == 'A="x" y'
