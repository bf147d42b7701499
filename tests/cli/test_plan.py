"""`kron plan`: text, JSON, and exit codes."""

import json
from pathlib import Path

import pytest

from kron.cli.main import BAD, GOOD, NO, run

WEEK = ["--from", "2026-03-02", "--to", "2026-03-09"]

OLD = """
- {identity: backup, schedule: "0 2 * * *", window: {mode: after, duration: 1h}}
- {identity: archive, schedule: "30 2 * * *"}
- {identity: report, schedule: "0 7 * * 1-5"}
- {identity: old-name, schedule: "0 4 * * 0", window: {mode: after, duration: 2h}}
- {identity: gone, schedule: "0 5 * * *"}
- {identity: same, schedule: "0 6 * * *"}
"""
NEW = """
- {identity: backup, schedule: "0 2 * * *", window: {mode: after, duration: 2h}}
- {identity: archive, schedule: "30 3 * * *"}
- {identity: report, schedule: "0 7 * * 1-5", policy: {deadline: 10m}}
- {identity: new-name, schedule: "0 4 * * 0", window: {mode: after, duration: 2h}}
- {identity: fresh, schedule: "30 3 * * 1"}
- {identity: same, schedule: "0 6 * * *"}
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    return [written(tmp_path, "old.yaml", OLD), written(tmp_path, "new.yaml", NEW)]


def written(folder: Path, name: str, text: str) -> str:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return str(file)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = NO) -> str:
    assert run(["plan", *arguments]) == code
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_totals_come_first(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, *files, *WEEK).splitlines()
    assert lines[:6] == [
        f"{files[0]} -> {files[1]}",
        "2026-03-02T00:00:00Z to 2026-03-09T00:00:00Z, all times in UTC",
        "",
        "Jobs:    1 added, 1 removed, 3 changed, 1 renamed, 1 unchanged",
        "Starts:  15 move, 1 appears, 7 vanish",
        "Minutes: 1 with more starts than before, and more than one",
    ]


def test_every_changed_job_has_its_fields_and_a_sentence(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(capsys, *files, *WEEK)
    assert text.partition("\nJobs\n")[2].partition("\n\n")[0].splitlines() == [
        "  ~ backup",
        "      window.duration: 1h -> 2h",
        "      7 starts: all move by +43s to +56m27s",
        "  ~ archive",
        "      schedule: 30 2 * * * -> 30 3 * * *",
        "      7 starts: all move by +1h",
        "  ~ report",
        "      policy.deadline: 0s -> 10m",
        "      5 starts: none changes",
        "  > old-name is now new-name",
        "      only the identity differs; it is part of the seed, so new times are chosen",
        "      1 start: it moves by +11m1s",
        "  + fresh",
        "      1 start appears",
        "  - gone",
        "      7 starts: all vanish",
    ]


def test_moved_starts_are_listed_in_order_with_both_times_and_the_shift(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(capsys, *files, *WEEK)
    starts = text.partition("- vanishes\n")[2].partition("\n\n")[0].splitlines()
    assert starts[0] == "  ~ 2026-03-02 02:30:00 -> 2026-03-02 03:30:00       +1h  archive"
    assert "  +                        2026-03-02 03:30:00            fresh" in starts
    assert "  - 2026-03-02 05:00:00                                   gone" in starts
    assert len(starts) == 11
    assert starts[-1] == "  ... 13 more (--all lists them)"


def test_all_lists_everything(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, *files, *WEEK, "--all")
    starts = text.partition("- vanishes\n")[2].partition("\n\n")[0].splitlines()
    assert len(starts) == 23
    assert "more (" not in text


def test_new_collisions_name_the_jobs_that_meet(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, *files, *WEEK).endswith(
        "\nMinutes with more starts than before, the fullest first; + is new there\n"
        "  2026-03-02 03:30  2 starts, 0 before: +archive, +fresh\n"
    )


def test_newcomers_are_listed_before_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stay = '{identity: a, schedule: "0 2 * * 1"}'
    pair = [
        written(tmp_path, "old.yaml", f'[{stay}, {{identity: z, schedule: "0 3 * * 1"}}]'),
        written(tmp_path, "new.yaml", f'[{stay}, {{identity: z, schedule: "0 2 * * 1"}}]'),
    ]
    assert shown(capsys, *pair, *WEEK).endswith("  2026-03-02 02:00  2 starts, 1 before: +z, a\n")


def test_many_jobs_in_a_minute_are_cut_to_the_line_without_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [{"identity": f"fleet/job-{number:02}", "schedule": "0 2 * * 1"} for number in range(30)]
    pair = [written(tmp_path, "old.json", "[]"), written(tmp_path, "new.json", json.dumps(jobs))]
    line = shown(capsys, *pair, *WEEK).splitlines()[-1]
    assert line == "  2026-03-02 02:00  30 starts, 0 before: +fleet/job-00 and 29 more"
    assert len(line) <= 80
    assert "fleet/job-29" in shown(capsys, *pair, *WEEK, "--all").splitlines()[-1]


def test_more_jobs_than_fit_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [{"identity": f"job-{number:02}", "schedule": "0 2 1 1 *"} for number in range(12)]
    pair = [written(tmp_path, "old.json", "[]"), written(tmp_path, "new.json", json.dumps(jobs))]
    text = shown(capsys, *pair, *WEEK)
    assert text.endswith("  + job-09\n      no start in this interval\n  ... 2 more (--all lists them)\n")


def test_equal_jobs_in_another_notation_have_no_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = written(tmp_path, "one.yaml", '{identity: a, schedule: "0 2 * * *", window: {duration: 90m}}')
    other = written(
        tmp_path,
        "other.json",
        '{"jobs": [{"schedule": "0 2 * * *", "identity": "a", "window": {"duration": "PT1H30M"}}]}',
    )
    text = shown(capsys, one, other, *WEEK, code=GOOD)
    assert text.splitlines()[-1] == "No changes: 1 job"
    assert json.loads(shown(capsys, one, other, *WEEK, "--json", code=GOOD))["same"] is True


def test_a_change_that_moves_no_start_is_a_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = [
        written(tmp_path, "one.yaml", '{identity: a, schedule: "0 0 * * *"}'),
        written(tmp_path, "other.yaml", '{identity: a, schedule: "@daily"}'),
    ]
    text = shown(capsys, *pair, *WEEK)
    assert "Starts:  none changes\n" in text
    assert text.endswith("      schedule: 0 0 * * * -> @daily\n      7 starts: none changes\n")


def test_a_rename_without_a_window_chooses_nothing_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = [
        written(tmp_path, "one.yaml", '{identity: a, schedule: "0 0 * * *"}'),
        written(tmp_path, "other.yaml", '{identity: b, schedule: "0 0 * * *"}'),
    ]
    assert shown(capsys, *pair, *WEEK).endswith(
        "  > a is now b\n      only the identity differs\n      7 starts: none changes\n"
    )


def test_starts_lost_to_constraints_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = '{identity: a, schedule: "0 2 * * *"'
    pair = [
        written(tmp_path, "one.yaml", job + "}"),
        written(tmp_path, "other.yaml", job + ", constraints: {avoid: {dow: [sat, sun]}}}"),
    ]
    text = shown(capsys, *pair, *WEEK)
    assert "      constraints.avoid.dow: none -> [0, 6]\n" in text
    assert "      7 starts: 2 vanish (2 unschedulable)\n" in text


def test_a_long_value_is_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = '{identity: a, schedule: "0 2 * * *"'
    days = ", ".join(f"2026-05-{day:02}" for day in range(1, 31))
    pair = [
        written(tmp_path, "one.yaml", job + "}"),
        written(tmp_path, "other.yaml", job + f", constraints: {{avoid: {{dates: [{days}]}}}}}}"),
    ]
    (line,) = [line for line in shown(capsys, *pair, *WEEK).splitlines() if "dates" in line]
    assert line == '      constraints.avoid.dates: none -> ["2026-05-01", "2026-05-02", "2026-05...'


def test_json_has_everything(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(shown(capsys, *files, *WEEK, "--json"))
    assert (document["from"], document["to"], document["same"], document["unchanged"]) == (
        "2026-03-02T00:00:00Z",
        "2026-03-09T00:00:00Z",
        False,
        1,
    )
    assert [(job["identity"], job["kind"]) for job in document["jobs"]] == [
        ("backup", "changed"),
        ("archive", "changed"),
        ("report", "changed"),
        ("new-name", "renamed"),
        ("fresh", "added"),
        ("gone", "removed"),
    ]
    backup, renamed = document["jobs"][0], document["jobs"][3]
    assert backup["fields"] == [{"path": "window.duration", "old": "1h", "new": "2h"}]
    assert (backup["stay"], backup["moves"], backup["sentence"][:8]) == (0, 7, "7 starts")
    assert renamed["old_identity"] == "old-name"
    assert len(document["starts"]) == 23
    assert document["starts"][0] == {
        "identity": "archive",
        "kind": "moves",
        "old": "2026-03-02T02:30:00Z",
        "new": "2026-03-02T03:30:00Z",
        "seconds": 3600,
    }
    assert document["collisions"] == [
        {
            "minute": "2026-03-02T03:30:00Z",
            "before": 0,
            "after": 2,
            "identities": ["archive", "fresh"],
            "newcomers": ["archive", "fresh"],
        }
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("", "must be a job, or a list of jobs", id="empty file"),
        pytest.param("[{identity: a, schedule: 0 2 * *}]", "bad.yaml", id="bad schedule"),
        pytest.param(
            "[{identity: a, schedule: 0 2 * * *}, {identity: a, schedule: 0 3 * * *}]",
            "has it already",
            id="the same identity twice",
        ),
    ],
)
@pytest.mark.parametrize("place", [0, 1], ids=["old", "new"])
def test_a_bad_file_on_either_side_is_bad_input(
    content: str, message: str, place: int, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    files[place] = written(Path(files[0]).parent, "bad.yaml", content)
    assert run(["plan", *files, *WEEK]) == BAD
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(["--from", "2026-03-09", "--to", "2026-03-02"], "must be later", id="reversed"),
        pytest.param(["--from", "2026-03-02", "--days", "500"], "use 1 to 366", id="too long"),
    ],
)
def test_a_bad_interval_is_bad_input(
    options: list[str], message: str, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", *files, *options]) == BAD
    assert message in capsys.readouterr().err


def test_one_file_is_not_enough(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", files[0]]) == BAD
    assert "NEW" in capsys.readouterr().err
