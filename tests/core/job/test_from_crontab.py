"""Crontabs as job definitions: commands, variables and identities, and the starts that would differ."""

from collections import Counter
from datetime import UTC, datetime
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.cron.schedule import Schedule, seconds_between
from kron.core.cron.vixie import cron_starts
from kron.core.job.from_crontab import (
    CRON_POLICY,
    CrontabSource,
    ImportedLine,
    StartComparison,
    StartDifference,
    compare_starts,
    jobs_from_crontab,
)
from tests.strategies import law, strict_expressions

BERLIN = CrontabSource(stem="web", timezone="Europe/Berlin")
SYSTEM = CrontabSource(stem="web", timezone="Europe/Berlin", has_user=True)
SINCE = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
YEAR = 365 * 86_400

# The structure of a system crontab and of the files of packages below /etc/cron.d.
PACKAGES = """\
# comment
SHELL=/bin/sh
PATH=/usr/local/sbin:/usr/local/bin:/sbin:/bin:/usr/sbin:/usr/bin

# m h dom mon dow user	command
17 *	* * *	root	cd / && run-parts --report /etc/cron.hourly
25 6	* * *	root	test -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.daily; }
47 6	* * 7	root	test -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.weekly; }
52 6	1 * *	root	test -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.monthly; }
30 3 * * 0 root test -e /run/systemd/system || SERVICE_MODE=1 /usr/lib/e2fsprogs/e2scrub_all_cron
5-55/10 * * * * root command -v debian-sa1 > /dev/null && debian-sa1 1 1
09,39 *     * * *     root   [ -x /usr/lib/php/sessionclean ] && /usr/lib/php/sessionclean
"""


def imported(text: str, source: CrontabSource = BERLIN) -> list[ImportedLine]:
    return jobs_from_crontab(text, source)


def only(text: str, source: CrontabSource = BERLIN) -> dict[str, object]:
    [line] = imported(text, source)
    assert line.problem is None, line.problem
    assert line.definition is not None
    return dict(line.definition)


def compared(text: str, source: CrontabSource = BERLIN) -> StartComparison:
    [line] = imported(text, source)
    comparison = compare_starts(line, SINCE, SINCE + YEAR)
    assert comparison is not None
    return comparison


def test_a_line_keeps_times_user_command_variables_and_input() -> None:
    text = "SHELL=/bin/bash\nLANG = de_DE.UTF-8 \n30 2 * * * www mail -s 100\\% joe%Joe,%%bye"
    assert only(text, SYSTEM) == {
        "identity": "web/mail-3ce0004b",
        "schedule": "30 2 * * *",
        "timezone": "Europe/Berlin",
        "dst_gap": "next",
        "dst_repeat": "first",
        "policy": CRON_POLICY,
        "user": "www",
        "command": "mail -s 100% joe",
        "shell": "/bin/bash",
        "env": {"PATH": "/usr/bin:/bin", "SHELL": "/bin/bash", "LANG": "de_DE.UTF-8"},
        "stdin": "Joe,\n\nbye\n",
    }


def test_variables_hold_from_their_line_on() -> None:
    text = "A=1\n@daily one\nA=2\nB='x y '\n@daily two\n"
    environments = [line.definition["env"] for line in imported(text) if line.definition]
    assert environments == [
        {"PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", "A": "1"},
        {"PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", "A": "2", "B": "x y "},
    ]


def test_a_home_is_the_folder_and_cron_sets_the_names_of_the_user() -> None:
    definition = only("HOME=/srv\nLOGNAME=eve\nPATH=/opt/bin\n@daily run")
    assert definition["cwd"] == "/srv"
    assert definition["env"] == {"PATH": "/opt/bin", "SHELL": "/bin/sh", "HOME": "/srv"}


def test_cron_tz_is_the_zone_of_the_lines_below_and_tz_a_variable_only() -> None:
    text = "TZ=Asia/Tokyo\n@daily one\nCRON_TZ=America/New_York\n@daily two"
    zones = [line.definition["timezone"] for line in imported(text) if line.definition]
    assert zones == ["Europe/Berlin", "America/New_York"]
    [one, two] = imported(text)
    assert "ignores CRON_TZ" in two.notes[0]
    assert one.notes == ()


def test_a_line_at_boot_has_no_times() -> None:
    [line] = imported("@reboot /opt/start")
    assert line.definition is not None
    assert line.definition["schedule"] == "@reboot"
    assert "timezone" not in line.definition
    assert compare_starts(line, SINCE, SINCE + YEAR) is None


@pytest.mark.parametrize(
    ("line", "schedule"),
    [
        ("0 9 1 * 1#2 x", "0 9 1 * 1"),
        ("5~10 * * * * x", "5 * * * *"),
        ("0 0 1-7 * mon x", "0 0 1-7 * mon"),
        ("*/15 * * * * x", "*/15 * * * *"),
    ],
)
def test_an_expression_means_what_it_means_in_cron(line: str, schedule: str) -> None:
    assert only(line)["schedule"] == schedule


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("61 * * * * x", "outside 0-59"),
        ("58-2 * * * * x", "never starts"),
        ("0 0 31 2 * x", "never starts in cron either"),
        ("0 0 * * *", "no command"),
        ("@daily", "no command"),
        ("CRON_TZ=Europe/Berln 0 0 * * * x", "Europe/Berln"),
        ("hello", "expression"),
    ],
)
def test_a_line_that_cannot_be_a_job_is_a_problem_and_stops_no_other(line: str, problem: str) -> None:
    first, second = imported(f"{line}\n@daily x\n")
    assert first.definition is None
    assert problem in str(first.problem)
    assert first.harmless == ("never" in problem or "command" in problem)
    assert second.definition is not None


def test_a_line_that_only_kron_accepts_says_so() -> None:
    [line] = imported("0 0 L * * x")
    assert line.cron is None
    assert line.definition is not None
    assert "refuses" in line.notes[0]


# --- identities ----------------------------------------------------------------------------------


def names(text: str) -> dict[str, str]:
    return {line.raw: str((line.definition or {}).get("identity")) for line in imported(text)}


def test_identities_do_not_depend_on_the_order_of_the_lines() -> None:
    lines = ["0 1 * * * a", "0 2 * * * b", "0 3 * * * b", "@reboot c", "0 5 * * * a  b"]
    expected = names("\n".join(lines))
    assert len(set(expected.values())) == 5
    for seed in range(5):
        Random(seed).shuffle(lines)
        assert names("\n".join(lines)) == expected


def test_a_line_keeps_its_identity_when_its_time_changes() -> None:
    assert list(names("0 1 * * * /opt/a").values()) == list(names("5 2 * * * /opt/a").values())


def test_equal_lines_are_numbered() -> None:
    identities = [(line.definition or {})["identity"] for line in imported("@daily a\n@daily a")]
    assert identities[1] == f"{identities[0]}-2"


def test_an_identity_names_the_program() -> None:
    commands = ["cd / && run-parts x", "A=1 /usr/bin/env python3 x", "[ -x /a ] && /opt/b c", "'"]
    text = "".join(f"@daily {command}\n" for command in commands)
    found = [str((line.definition or {})["identity"]).rpartition("-")[0] for line in imported(text)]
    assert found == ["web/run-parts", "web/env", "web/b", "web/job"]


# --- starts --------------------------------------------------------------------------------------

SPRING = int(datetime(2026, 3, 29, 1, tzinfo=UTC).timestamp())
AUTUMN = int(datetime(2026, 10, 25, 1, 30, tzinfo=UTC).timestamp())


def test_a_nightly_line_starts_as_in_cron() -> None:
    assert compared("30 2 * * * x") == StartComparison(365, ())


def test_two_skipped_times_are_two_starts_in_cron_and_one_in_kron() -> None:
    assert compared("0,30 2 * * * x").differences == (StartDifference(SPRING, 2, 1),)
    assert compared("0 2,3 * * * x").differences == (StartDifference(SPRING, 2, 1),)


def test_the_literal_rule_differs_in_the_gap_and_in_the_repeated_hour() -> None:
    source = CrontabSource(stem="web", timezone="Europe/Berlin", literal=True)
    assert compared("30 2 * * * x", source).differences == (
        StartDifference(SPRING, 1, 0),
        StartDifference(AUTUMN, 0, 1),
    )


def test_the_lines_of_packages_start_as_in_cron() -> None:
    lines = imported(PACKAGES, SYSTEM)
    assert len(lines) == 7
    for line in lines:
        assert line.problem is None, line
        comparison = compare_starts(line, SINCE, SINCE + YEAR)
        assert comparison is not None
        assert comparison.differences == ()


@given(strict_expressions(), st.sampled_from(["Europe/Berlin", "Australia/Lord_Howe", "UTC"]))
@law(60)
def test_every_difference_is_found_though_only_days_around_clock_changes_are_compared(
    expression: str, zone: str
) -> None:
    [line] = imported(f"{expression.strip()} x", CrontabSource(stem="a", timezone=zone))
    definition, cron = line.definition, line.cron
    assert definition is not None
    assert cron is not None
    start, end = SPRING - 20 * 86_400, SPRING + 20 * 86_400
    schedule = Schedule(
        str(definition["schedule"]),
        zone,
        dst_gap=str(definition.get("dst_gap", "skip")),
        dst_repeat=str(definition.get("dst_repeat", "both")),
    )
    of_cron = Counter(cron_starts(cron, schedule.plan.zone, start, end))
    of_kron = Counter(seconds_between(schedule.plan, start, end))
    expected = {at for at in of_cron | of_kron if of_cron[at] != of_kron[at]}
    comparison = compare_starts(line, start, end)
    assert comparison is not None
    assert {difference.at for difference in comparison.differences} == expected
    assert comparison.starts == of_kron.total()


TEXT = [*"*0123456789,-/% \t\n=@#\\'\"", "PATH", "@daily "]


@given(st.text(max_size=120) | st.lists(st.sampled_from(TEXT)).map("".join))
@law(300)
def test_any_text_is_read_as_a_crontab(text: str) -> None:
    for line in imported(text) + imported(text, SYSTEM):
        assert (line.definition is None) == (line.problem is not None)
