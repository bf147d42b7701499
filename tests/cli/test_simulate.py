"""`kron simulate`: text, JSON, and errors."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kron.cli.main import BAD, GOOD, run
from kron.cli.support.job_file import load_jobs
from kron.core.job.load import load_of
from tests.tiers import mostly_slow
from tests.waiting import awaited

KRON = Path(sys.executable).with_name("kron")
FLEET = Path(__file__).parents[2] / "examples" / "fleet.yaml"
DAY = ["--from", "2026-03-02", "--days", "1"]
WEEK = ["--from", "2026-03-02", "--to", "2026-03-09"]

SPREAD = """
- {identity: nightly, schedule: "0 2 * * *", window: {mode: after, duration: 1h}}
- {identity: exact, schedule: "0 2 * * *"}
- {identity: half, schedule: "0 2,3 * * *", constraints: {avoid: {hours: [3]}}}
- {identity: yearly, schedule: "0 0 1 1 *"}
- {identity: asleep, schedule: "* * * * *", policy: {suspend: true}}
"""


@pytest.fixture
def spread(tmp_path: Path) -> str:
    file = tmp_path / "jobs.yaml"
    file.write_text(SPREAD, encoding="utf-8")
    return str(file)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["simulate", *arguments]) == GOOD
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def row(text: str, name: str) -> list[str]:
    """Return the figures of the line that starts with a name."""
    line = next(line for line in text.splitlines() if line.strip().startswith(name))
    return line.strip().removeprefix(name).split()


def test_figures_are_shown_with_and_without_windows(spread: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, spread, *DAY)
    assert text.splitlines()[:2] == [
        f"{spread}   5 jobs, 1 of them suspended",
        "2026-03-02T00:00:00Z to 2026-03-03T00:00:00Z, 1 day",
    ]
    assert row(text, "starts") == ["3", "4"]
    assert row(text, "mean in a minute") == ["0.00", "0.00"]
    assert row(text, "p99 in a minute") == ["0", "0"]
    assert row(text, "peak in a minute") == ["2", "3"]
    assert row(text, "of these set for :00") == ["2", "of", "2", "3", "of", "3"]
    assert row(text, "starts in minute :00") == ["66.7", "%", "100.0", "%"]
    assert row(text, "unschedulable periods") == ["1", "-"]


def test_the_worst_minute_names_its_jobs_and_where_they_come_from(
    spread: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(capsys, spread, *DAY)
    assert (
        "The worst minute: Mon 2026-03-02 02:00 UTC, 2 starts\n  02:00:00  exact\n  02:00:00  half\n" in text
    )
    assert "(set for 22:00:00)" in shown(capsys, str(FLEET), *WEEK)


def test_jobs_that_cannot_start_are_named(spread: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, spread, *DAY)
    assert (
        "Unschedulable periods: no time in the window satisfies the constraints\n  half: 1 of 2 periods\n"
        in text
    )
    assert text.endswith("No period in this interval\n  yearly\n")


def test_each_hour_has_a_bar_with_windows_and_its_extension_without(
    spread: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(capsys, spread, *DAY).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("  00:00"))
    assert [line[2:7] for line in lines[first : first + 24]] == [f"{hour:02}:00" for hour in range(24)]
    two = lines[first + 2]
    # The bar is 51 columns wide: two starts of three, and the third without windows.
    assert (two.count("█"), two.count("░"), two.split()[-2:]) == (34, 17, ["2", "3"])
    three = lines[first + 3]
    assert (three.count("█"), three.count("░"), three.split()[-2:]) == (0, 17, ["0", "1"])


def test_hours_of_less_than_a_day_are_in_order(spread: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, spread, "--from", "2026-03-02T22:30", "--to", "2026-03-03T03:10")
    assert "2026-03-02T22:30:00Z to 2026-03-03T03:10:00Z, 4 h 40 min" in text
    hours = [line[2:7] for line in text.splitlines() if line[4:9] == ":00  " and line[2:4].isdigit()]
    assert hours == ["22:00", "23:00", "00:00", "01:00", "02:00", "03:00"]


def test_the_worst_hour_is_drawn_minute_by_minute(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, str(FLEET), *WEEK).splitlines()
    place = lines.index("The worst hour, minute by minute: Mon 2026-03-02 22:00 UTC")
    chart = [line for line in lines[place:] if line[9:10] in ("|", "+")]
    assert len(chart) == 12
    minutes = [sum(cells[10:][minute : minute + 1] == "█" for cells in chart[:5]) for minute in range(60)]
    load = load_of(load_jobs(str(FLEET)), *_week())
    assert minutes == load.decided.hour_at(_week()[0] + 22 * 3600)
    assert lines[place + 1] == "  with windows: 20 starts, at most 4 in a minute"


def _week() -> tuple[int, int]:
    start = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp())
    return start, start + 7 * 86_400


def test_a_fleet_without_windows_has_one_chart_of_its_worst_hour(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "jobs.json"
    file.write_text('[{"identity": "a", "schedule": "0 2 * * *"}]', encoding="utf-8")
    text = shown(capsys, str(file), *DAY)
    assert text.count("+---") == 1
    assert "with windows and without: 1 start, at most 1 in a minute" in text


def test_a_long_list_of_names_is_cut_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "jobs.json"
    jobs = [{"identity": f"job/{number:03}", "schedule": "0 2 * * *"} for number in range(250)]
    file.write_text(json.dumps(jobs), encoding="utf-8")
    text = shown(capsys, str(file), *DAY)
    assert "  02:00:00  job/009\n  ... 240 more (--json lists them)\n" in text
    assert "job/010" not in text
    document = json.loads(shown(capsys, str(file), *DAY, "--json"))
    assert len(document["with_windows"]["worst_minute_starts"]) == 250


def test_a_bar_shows_even_the_smallest_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "jobs.json"
    jobs = [{"identity": f"job/{number:03}", "schedule": "0 2 * * *"} for number in range(250)]
    file.write_text(json.dumps([*jobs, {"identity": "one", "schedule": "0 4 * * *"}]), encoding="utf-8")
    lines = shown(capsys, str(file), *DAY).splitlines()
    bars = {line[2:7]: line.count("█") for line in lines if line[4:9] == ":00  "}
    assert (bars["02:00"], bars["03:00"], bars["04:00"]) == (51, 0, 1)


def test_nothing_to_start_is_a_fleet_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "jobs.json"
    file.write_text('{"identity": "a", "schedule": "0 0 1 1 *"}', encoding="utf-8")
    text = shown(capsys, str(file), *DAY)
    assert row(text, "starts") == ["0", "0"]
    assert row(text, "starts in minute :00") == ["-", "-"]
    assert "No period in this interval\n  a\n" in text
    assert "worst" not in text


def test_unschedulable_periods_have_a_load_without_windows_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(
        '{identity: a, schedule: "0 2 * * *", constraints: {avoid: {hours: [2]}}}', encoding="utf-8"
    )
    text = shown(capsys, str(file), *DAY)
    assert row(text, "starts") == ["0", "1"]
    assert "a: 1 of 1 period\n" in text


def test_json_has_every_minute_and_every_figure(spread: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(shown(capsys, spread, *DAY, "--json"))
    assert (document["from"], document["to"]) == ("2026-03-02T00:00:00Z", "2026-03-03T00:00:00Z")
    assert document["suspended"] == ["asleep"]
    assert document["jobs"]["half"] == {"starts": 1, "unschedulable": 1}
    assert len(document["minutes_with_windows"]) == len(document["minutes_without_windows"]) == 1440
    for side in ("with_windows", "without_windows"):
        minutes, figures = document[f"minutes_{side}"], document[side]
        assert (sum(minutes), max(minutes)) == (figures["starts"], figures["peak"])
        assert figures["worst_minute"] == "2026-03-02T02:00:00Z"
        assert minutes[120] == len(figures["worst_minute_starts"]) == figures["worst_minute_set_for_00"]
        assert figures["peak_by_hour"]["02"] == figures["peak"]


def test_the_worst_minute_lists_only_starts_in_the_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text('{identity: a, schedule: "*/10 * * * * *"}', encoding="utf-8")
    bounds = ["--from", "2026-03-02T00:00:35", "--to", "2026-03-02T00:00:55"]
    document = json.loads(shown(capsys, str(file), *bounds, "--json"))
    starts = [start["start_at"] for start in document["with_windows"]["worst_minute_starts"]]
    assert starts == ["2026-03-02T00:00:40Z", "2026-03-02T00:00:50Z"]


def test_several_files_are_one_fleet(spread: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"identity": "other", "schedule": "0 2 * * *"}', encoding="utf-8")
    text = shown(capsys, spread, str(other), *DAY)
    assert text.startswith(f"{spread}, {other}   6 jobs")
    assert row(text, "peak in a minute") == ["3", "4"]


def test_times_without_an_offset_are_read_in_utc_and_others_as_they_say(
    spread: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(capsys, spread, "--from", "2026-03-02T01:00+01:00", "--to", "2026-03-03")
    assert "2026-03-02T00:00:00Z to 2026-03-03T00:00:00Z" in text


def test_seven_days_from_the_next_minute_on_are_the_default(
    spread: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = datetime.now(UTC)
    document = json.loads(shown(capsys, spread, "--json"))
    start, end = (datetime.fromisoformat(document[name]) for name in ("from", "to"))
    assert ((end - start).days, start.second) == (7, 0)
    assert -1 <= (start - before).total_seconds() <= 120


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(
            ["--from", "2026-03-02", "--to", "2026-03-01"],
            'Invalid --to "2026-03-01": must be later than 2026-03-02T00:00:00Z',
            id="reversed",
        ),
        pytest.param(["--from", "2026-03-02", "--to", "2026-03-02"], "must be later", id="empty"),
        pytest.param(
            ["--from", "2026-03-02", "--to", "2028-03-02"],
            'Invalid --to "2028-03-02": use at most 366 days',
            id="too long",
        ),
        pytest.param(["--days", "367"], 'Invalid --days "367": use 1 to 366', id="too many days"),
        pytest.param(["--days", "0"], 'Invalid --days "0": use 1 to 366', id="no days"),
        pytest.param(["--to", "2026-03-02", "--days", "1"], "give --to or --days, not both", id="both ends"),
        pytest.param(["--from", "soon"], 'Invalid --from "soon"', id="no time"),
        pytest.param(["--from", "9999-12-30"], "the calendar ends with the year 9999", id="after the end"),
        pytest.param(["--days", "many"], 'Invalid --days "many": use 1 to 366', id="no number"),
        pytest.param(["--days", "1e9"], 'Invalid --days "1e9": use 1 to 366', id="no whole number"),
        pytest.param(["--to", "late"], 'Invalid --to "late": write 2026-03-29', id="no end"),
        pytest.param(["--from", ""], 'Invalid --from "": write 2026-03-29', id="nothing"),
    ],
)
def test_bad_intervals_get_one_line(
    options: list[str], message: str, spread: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", spread, *options]) == BAD
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert message in captured.err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("", "must be a job, or a list of jobs", id="empty file"),
        pytest.param("[]", "it has no jobs", id="empty list"),
        pytest.param("jobs: []", "it has no jobs", id="no jobs"),
        pytest.param("{identity: a, schedule: 61 * * * *}", "schedule", id="bad schedule"),
    ],
)
def test_a_file_without_valid_jobs_is_an_error(
    content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(content, encoding="utf-8")
    assert run(["simulate", str(file)]) == BAD
    assert message in capsys.readouterr().err


def test_an_identity_in_two_files_is_an_error_that_names_both(
    spread: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text('{identity: exact, schedule: "0 3 * * *"}', encoding="utf-8")
    assert run(["simulate", spread, str(other)]) == BAD
    assert capsys.readouterr().err == f'kron: {other}: identity "exact": {spread} has it already\n'


def test_a_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", str(tmp_path / "none.yaml")]) == BAD
    assert "none.yaml" in capsys.readouterr().err


def test_a_name_with_control_characters_cannot_change_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "jobs.json"
    file.write_text('{"identity": "a\\u001b[2J", "schedule": "0 2 * * *"}', encoding="utf-8")
    assert "a\\x1b[2J" in shown(capsys, str(file), *DAY)


# --- on a terminal ---


def on_terminal(columns: int, *arguments: str) -> bytes:
    """Return the output to a terminal of a width."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment["PYTHONUTF8"] = "1"
    words = [str(KRON), *arguments]
    with awaited(
        subprocess.Popen(words, stdin=child, stdout=child, stderr=child, env=environment)
    ) as process:
        os.close(child)
        received = b""
        while True:
            try:
                piece = os.read(parent, 65_536)
            except OSError:  # the terminal is closed once the process has ended
                break
            if not piece:
                break
            received += piece
        assert process.wait() == GOOD
    os.close(parent)
    return received


@pytest.mark.parametrize(("columns", "widest"), mostly_slow([(60, 79), (80, 79), (120, 119), (200, 119)]))
def test_the_chart_fits_the_terminal(columns: int, widest: int) -> None:
    received = on_terminal(columns, "simulate", str(FLEET), *DAY)
    text = received.rpartition(b"\r ")[2].decode()
    lines = [line.rpartition("\r")[2] for line in text.replace("\r\n", "\n").split("\n")]
    assert max(len(line) for line in lines if "░" in line) == widest


def test_progress_is_shown_on_a_terminal_and_wiped() -> None:
    received = on_terminal(80, "simulate", str(FLEET), *DAY).decode()
    assert "kron: simulating, 55 %" in received
    assert received.rpartition("simulating")[2].startswith(", 88 %")
    assert f"\r\x1b[K{FLEET}" in received


def test_piped_output_has_a_fixed_width() -> None:
    environment = {**os.environ, "COLUMNS": "200", "PYTHONUTF8": "1"}
    done = subprocess.run(
        [KRON, "simulate", FLEET, *WEEK], env=environment, capture_output=True, encoding="utf-8", check=True
    )
    assert max(map(len, done.stdout.splitlines()[1:])) == 79
    assert done.stderr == ""
