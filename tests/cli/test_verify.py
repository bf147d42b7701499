"""`kron verify`: decisions in files and logs, recomputed one by one."""

import json
import os
import pty
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kron.cli.commands import verify
from kron.cli.main import BAD, GOOD, NO, run
from kron.core.job.decision import decide
from kron.core.job.job import Job

pytestmark = pytest.mark.slow

KRON = Path(sys.executable).with_name("kron")
ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "decisions.json"
JOB = Job.from_dict(
    {
        "identity": "prod/backup",
        "schedule": "0 0 * * *",
        "window": {"duration": "1h"},
        "constraints": {"avoid": {"between": ["00:10-00:40"]}},
    }
)
FIRST = datetime(2026, 3, 1, tzinfo=UTC)


def certificates(count: int) -> Iterator[dict[str, Any]]:
    for day in range(count):
        yield decide(JOB, FIRST + timedelta(days=day)).to_dict()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "decisions.json"


def shown(capsys: pytest.CaptureFixture[str], file: Path) -> list[str]:
    """Return the output without the name of the file."""
    return [line.removeprefix(f"{file}:") for line in capsys.readouterr().out.splitlines()]


ONE, TWO, THREE = certificates(3)
GOOD_FILES = {
    "one decision": (json.dumps(ONE), [1]),
    "one decision over many lines": (json.dumps(ONE, indent=2), [1]),
    "a list in one line": (json.dumps([ONE, TWO]), [1, 1]),
    "a list over many lines": (
        json.dumps([ONE, TWO], indent=1),
        [2, 2 + json.dumps([ONE], indent=1).count("\n") - 1],
    ),
    "a list with a line for each": (f"[\n{json.dumps(ONE)},\n\n{json.dumps(TWO)}\n]\n", [2, 4]),
    "a list of one": (f"[\n{json.dumps(ONE)}\n]\n", [2]),
    "blank lines first": ("\n\n" + json.dumps(ONE, indent=2), [3]),
    "JSON lines": ("".join(json.dumps(one) + "\n" for one in (ONE, TWO, THREE)), [1, 2, 3]),
    "JSON lines with blank ones": (f"\n{json.dumps(ONE)}\n\n \n{json.dumps(TWO)}", [2, 5]),
    "lines that end as in Windows": (f"{json.dumps(ONE)}\r\n{json.dumps(TWO)}\r\n", [1, 2]),
    "a byte order mark": ("\ufeff" + json.dumps(ONE), [1]),
    "a log": ("".join(json.dumps({"level": "info", "decision": one}) + "\n" for one in (ONE, TWO)), [1, 2]),
    "what explain prints": (json.dumps([{"decision": ONE, "samples": [], "verdict": {}}], indent=2), [2]),
}


@pytest.mark.parametrize("kind", list(GOOD_FILES))
def test_decisions_are_read_from_every_kind_of_file(
    kind: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, lines = GOOD_FILES[kind]
    file.write_text(text, encoding="utf-8")
    assert run(["verify", str(file)]) == GOOD
    *verdicts, summary = shown(capsys, file)
    assert verdicts == [
        f"{line}: ok [prod/backup 2026-03-0{number}T00:00:00Z]" for number, line in enumerate(lines, 1)
    ]
    assert summary == f"{len(lines)} verified: {len(lines)} ok, 0 does not follow, 0 not a decision"


def test_all_kept_decisions_follow(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "-q", str(GOLDEN)]) == GOOD
    assert capsys.readouterr().out.endswith(" ok, 0 does not follow, 0 not a decision\n")


def test_the_example_program_agrees_on_the_golden_decisions() -> None:
    example = ROOT / "examples" / "verify_decision.py"
    assert len(example.read_text(encoding="utf-8").splitlines()) < 80
    assert "kron" not in [
        word
        for line in example.read_text(encoding="utf-8").splitlines()
        if line.startswith(("import ", "from "))
        for word in line.replace(".", " ").split()
    ]
    with GOLDEN.open(encoding="utf-8") as kept:
        done = subprocess.run(
            [sys.executable, "-I", example], stdin=kept, capture_output=True, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (GOOD, "")
    assert set(done.stdout.splitlines()) == {"ok"}


def test_the_example_program_agrees_on_an_altered_decision() -> None:
    example = ROOT / "examples" / "verify_decision.py"
    text = json.dumps([ONE, {"decision": {**TWO, "attempts": 64, "chosen_time": None}}])
    done = subprocess.run(
        [sys.executable, "-I", example], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == NO
    assert done.stdout == "ok\ndoes not follow: chosen_time, attempts\n"


# --- decisions that differ -------------------------------------------------------------------------


def test_a_decision_that_differs_is_reported_with_both_values(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = {**TWO, "chosen_time": "2026-03-02T00:00:00Z", "attempts": 3}
    file.write_text("\n".join(map(json.dumps, [ONE, changed])), encoding="utf-8")
    assert run(["verify", str(file)]) == NO
    good, bad, summary = shown(capsys, file)
    assert good.startswith("1: ok")
    assert bad == (
        '2: does not follow: chosen_time: recorded "2026-03-02T00:00:00Z", '
        f'recomputed "{TWO["chosen_time"]}"; '
        f"attempts: recorded 3, recomputed {TWO['attempts']} [prod/backup 2026-03-02T00:00:00Z]"
    )
    assert summary == "2 verified: 1 ok, 1 does not follow, 0 not a decision"


def test_quiet_shows_only_decisions_that_differ(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = {**TWO, "attempts": 0}
    file.write_text("\n".join(map(json.dumps, [ONE, changed, THREE])), encoding="utf-8")
    assert run(["verify", "--quiet", str(file)]) == NO
    assert [line[:2] for line in shown(capsys, file)[:-1]] == ["2:"]


OTHERS = [
    pytest.param("hello", "it is not JSON: Expecting value at column 1", id="a word"),
    pytest.param('{"kron_decision": 1', "it is not JSON", id="a line cut short"),
    pytest.param("5", 'decision "5": must be an object', id="a number"),
    pytest.param("{}", "kron_decision: is missing", id="an object"),
    pytest.param('{"decision": null}', "decision: must be an object", id="an empty decision"),
    pytest.param('{"kron_decision": 2}', 'kron_decision "2": unknown format', id="another format"),
    pytest.param('{"kron_decision": 1}', "identity: is missing", id="nearly nothing"),
    pytest.param('{"a": 1, "a": 2}', 'duplicate field "a"', id="a field twice"),
    pytest.param('{"a": NaN}', "NaN is not JSON", id="NaN"),
    pytest.param('{"a": ' + "9" * 5000 + "}", "4300 digits", id="a number without end"),
    pytest.param("[" * 100_000, "nested too deeply", id="deep nesting"),
    pytest.param(json.dumps({**ONE, "more": 1}), "more: unknown field", id="an unknown field"),
    pytest.param(json.dumps({**ONE, "identity": "a\nb"}), "line break", id="an identity of two lines"),
    pytest.param(json.dumps({**ONE, "window": [[[[1]]]]}), "must be an object", id="a window that is none"),
]


@pytest.mark.parametrize(("text", "reason"), OTHERS)
def test_a_line_that_is_not_a_decision_is_reported_with_its_reason(
    text: str, reason: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(f"{json.dumps(ONE)}\n{text}\n{json.dumps(TWO)}\n", encoding="utf-8")
    assert run(["verify", str(file)]) == NO
    _, bad, _, summary = shown(capsys, file)
    assert bad.startswith("2: not a decision: ")
    assert reason in bad
    assert summary == "3 verified: 2 ok, 0 does not follow, 1 not a decision"


@pytest.mark.parametrize("depth", [50, 300, 900, 990])
def test_nesting_just_short_of_too_deep_is_no_decision_either(
    depth: int, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deep = '{"kron_decision": 1, "window": ' + "[" * depth + "]" * depth + "}"
    whole = json.dumps({**ONE, "window": "HERE"}).replace('"HERE"', "[" * depth + "]" * depth)
    file.write_text(f"{json.dumps(ONE)}\n{deep}\n{whole}\n", encoding="utf-8")
    assert run(["verify", str(file)]) == NO
    assert "1 ok, 0 does not follow, 2 not a decision" in capsys.readouterr().out


def test_a_log_whose_first_line_was_cut_short_is_still_a_log(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(f'{{"kron_decision": 1,\n{json.dumps(ONE)}\n{json.dumps(TWO)}\n', encoding="utf-8")
    assert run(["verify", str(file)]) == NO
    assert [line[:5] for line in shown(capsys, file)[:-1]] == ["1: no", "2: ok", "3: ok"]


def test_other_lines_of_a_log_can_be_passed_over(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["started", json.dumps(ONE), '{"event": "start"}', "[1]", json.dumps({"decision": TWO}), ""]
    file.write_text("\n".join(lines), encoding="utf-8")
    assert run(["verify", "--skip-others", str(file)]) == GOOD
    *verdicts, summary = shown(capsys, file)
    assert [line[:5] for line in verdicts] == ["2: ok", "5: ok"]
    assert summary.endswith("; 3 other lines ignored")
    file.write_text(f'{json.dumps(ONE)}\n{{"kron_decision": 9}}\n', encoding="utf-8")
    assert run(["verify", "--skip-others", str(file)]) == NO


def test_control_characters_in_a_log_cannot_reach_the_terminal(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = {**ONE, "identity": "a\x1b[2Jb", "period_id": "\x07"}
    file.write_text(json.dumps(evil), encoding="utf-8")
    assert run(["verify", str(file)]) == NO
    assert not set(capsys.readouterr().out) & {"\x1b", "\x07"}


def test_another_release_of_the_zone_database_is_a_note(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = {**ONE, "tzdata_version": "1999z"}
    file.write_text("\n".join(map(json.dumps, [older, {**older, "attempts": 0}])), encoding="utf-8")
    assert run(["verify", str(file)]) == NO
    first, second, _ = shown(capsys, file)
    assert "(note: decided with time zone database 1999z, verified with " in first
    assert first.startswith("1: ok")
    assert "differ" not in first
    assert second.endswith(", which may be why they differ)")
    file.write_text(json.dumps(older), encoding="utf-8")
    assert run(["verify", str(file)]) == GOOD


# --- unreadable files ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"", "it has no decision", id="empty"),
        pytest.param(b"\n \n", "it has no decision", id="blank"),
        pytest.param(b"[]", "it has no decision", id="an empty list"),
        pytest.param(b"[\n]\n", "it has no decision", id="an empty list over two lines"),
        pytest.param(b'\xff\xfe{"a": 1}', "it is not UTF-8 text", id="not text"),
        pytest.param(b"[\n{},\n", "line 3: it is not JSON", id="a list cut short"),
        pytest.param(
            b"[\n{}\n{}\n]", "line 3: it is not JSON: Expecting ',' delimiter", id="a comma missing"
        ),
        pytest.param(b"[\n{}\n]\n5\n", "line 4: it is not JSON: Extra data", id="more after the list"),
        pytest.param(b'{\n"a": 1,\n"a": 2}', 'duplicate field "a"', id="a field twice"),
        pytest.param(b"[\n" + b"[" * 100_000, "nested too deeply", id="deep nesting"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    content: bytes, reason: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_bytes(content)
    assert run(["verify", str(file)]) == BAD
    told = capsys.readouterr()
    (line,) = told.err.splitlines()
    assert line.startswith(f'kron: Cannot read "{file}": ')
    assert reason in line
    assert "0 verified" not in told.out


def test_a_file_that_is_not_there_does_not_stop_the_others(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(json.dumps(ONE), encoding="utf-8")
    assert run(["verify", str(tmp_path / "nowhere"), str(tmp_path), str(file)]) == BAD
    told = capsys.readouterr()
    assert "1 verified: 1 ok" in told.out
    assert [line.rpartition(": ")[2] for line in told.err.splitlines()] == [
        "No such file or directory",
        "Is a directory",
    ]


def test_a_document_that_is_too_long_is_an_error(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verify, "MAX_DOCUMENT", 2 << 20)
    file.write_text("x" * ((2 << 20) + 1), encoding="utf-8")
    assert run(["verify", str(file)]) == BAD
    assert "line 1: the JSON that starts here is longer than 2 MiB" in capsys.readouterr().err
    file.write_text("[\n" + "\n".join(["{},"] * (1 << 20)), encoding="utf-8")
    assert run(["verify", str(file)]) == BAD
    assert "is longer than 2 MiB" in capsys.readouterr().err


def test_without_a_file_the_usage_is_bad(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify"]) == BAD
    assert "kron verify --help" in capsys.readouterr().err


# --- for machines, and from other commands ---------------------------------------------------------


def test_json_has_every_result_and_is_valid_after_errors(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = {**TWO, "attempts": 0}
    file.write_text("\n".join([json.dumps(ONE), json.dumps(changed), "x"]), encoding="utf-8")
    assert run(["verify", "--json", str(file), "nowhere"]) == BAD
    document = json.loads(capsys.readouterr().out)
    assert document["summary"] == {"ok": 1, "does_not_follow": 1, "not_a_decision": 1, "passed_over": 0}
    assert [entry["file"] for entry in document["unreadable"]] == ["nowhere"]
    first, second, third = document["decisions"]
    assert first == {
        "file": str(file),
        "line": 1,
        "finding": "ok",
        "identity": "prod/backup",
        "period_id": "2026-03-01T00:00:00Z",
        "reasons": [],
        "differences": [],
        "note": None,
    }
    assert second["differences"] == [{"field": "attempts", "recorded": 0, "recomputed": TWO["attempts"]}]
    assert (third["finding"], third["identity"], third["line"]) == ("not_a_decision", None, 3)


def test_json_of_nothing_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "--json", "nowhere"]) == BAD
    assert json.loads(capsys.readouterr().out)["decisions"] == []


@pytest.mark.parametrize("command", ["next", "explain"])
def test_the_output_of_other_commands_can_be_piped_in(command: str, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text(
        "- {identity: a, schedule: 0 2 * * *, timezone: Europe/Berlin, window: {duration: 1h}}\n"
        "- {identity: b, schedule: 0 9 * * *, distribution: normal, window: {mode: around, duration: 3h}}\n",
        encoding="utf-8",
    )
    made = subprocess.run([KRON, command, jobs, "--json"], capture_output=True, text=True, check=True)
    done = subprocess.run(
        [KRON, "verify", "-"], input=made.stdout, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (GOOD, "")
    assert "-:2: ok [" in done.stdout
    assert done.stdout.endswith(" ok, 0 does not follow, 0 not a decision\n")


def test_a_long_log_is_read_line_by_line_and_no_more_than_a_line_is_held(file: Path) -> None:
    lines = [json.dumps(one) + "\n" for one in certificates(50)]
    with file.open("w", encoding="utf-8") as log:
        for _ in range(200):
            log.writelines(lines)
    read = verify.read_items(str(file))
    tracemalloc.start()
    try:
        assert sum(1 for _ in read) == 10_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert file.stat().st_size > 5_000_000
    assert peak < 500_000


def test_progress_is_not_shown_without_a_terminal(file: Path) -> None:
    file.write_text("".join(json.dumps(one) + "\n" for one in certificates(60)) * 100, encoding="utf-8")
    done = subprocess.run([KRON, "verify", "-q", file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (GOOD, "")
    assert done.stdout == "6000 verified: 6000 ok, 0 does not follow, 0 not a decision\n"


def test_progress_is_shown_on_a_terminal(file: Path) -> None:
    file.write_text("".join(json.dumps(one) + "\n" for one in certificates(60)) * 100, encoding="utf-8")
    ours, theirs = pty.openpty()
    try:
        command: list[str | Path] = [KRON, "verify", "-q", file]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, text=True, check=False)
        told = os.read(ours, 4096).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == GOOD
    assert "5,000 decisions" in told
    assert done.stdout.startswith("6000 verified")


def test_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", "--help"]) == GOOD
    assert "kron verify decisions.json" in capsys.readouterr().out
