"""Subjects of commands: files, pipes and standard input, read once and up to a limit."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kron.cli.main import BAD, GOOD, NO, run
from kron.cli.support.read import MAX_CRONTAB, read_text
from kron.cli.support.source import looks_like_jobs, read_source
from kron.core.errors import UnreadableFileError

KRON = Path(sys.executable).with_name("kron")
YAML = '# ours\n\n- identity: a\n  schedule: "0 9 * * *"\n  policy: {deadline: 1h}\n'
JSON = '[\n  {"identity": "a", "schedule": "0 9 * * *", "policy": {"deadline": "1h"}}\n]\n'
CRONTAB = "# ours\n\n0 9 * * * /opt/a\n"


@pytest.mark.parametrize(
    ("text", "has_jobs"),
    [
        pytest.param(YAML, True, id="a list in YAML"),
        pytest.param(JSON, True, id="a list in JSON"),
        pytest.param("identity: a\n", True, id="a field"),
        pytest.param("jobs:\n", True, id="a field alone"),
        pytest.param('"jobs" : []', True, id="a field in quotes"),
        pytest.param("  {identity: a}", True, id="braces"),
        pytest.param("---\njobs: []", True, id="a document"),
        pytest.param("-\n  identity: a", True, id="an item over two lines"),
        pytest.param(CRONTAB, False, id="a crontab"),
        pytest.param("MAILTO=ops\n", False, id="an assignment"),
        pytest.param("@daily echo a: b", False, id="a macro"),
        pytest.param("*/5 * * * * echo", False, id="a step"),
        pytest.param("0 9 * * * echo {a: b}", False, id="braces in a command"),
        pytest.param("-*/5 * * * * echo", False, id="a dash without a blank"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_the_kind_of_a_text_follows_from_its_first_line(text: str, has_jobs: bool) -> None:
    assert looks_like_jobs(text) is has_jobs


@pytest.mark.parametrize(
    ("name", "has_jobs"),
    [("a.yaml", True), ("a.yml", True), ("a.JSON", True), ("a.txt", False), ("crontab", False)],
)
def test_the_kind_of_a_file_follows_from_its_suffix(name: str, has_jobs: bool, tmp_path: Path) -> None:
    (tmp_path / name).write_text(YAML, encoding="utf-8")
    source = read_source(str(tmp_path / name))
    assert source is not None
    assert source.has_jobs is has_jobs


def kron(*arguments: str, given: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([KRON, *arguments], input=given, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "given", [pytest.param(YAML, id="YAML"), pytest.param(JSON, id="JSON", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["next", "-", "-n", "1"], "-   1 job\n"),
        pytest.param(["explain", "-"], "a   0 9 * * *   UTC\n", marks=pytest.mark.slow),
        (["lint", "-"], "no findings in 1 schedule\n"),
        pytest.param(["simulate", "-"], "-   1 job\n", marks=pytest.mark.slow),
        pytest.param(["plan", "-", "{file}"], "- -> {file}\n", marks=pytest.mark.slow),
        (["plan", "{file}", "-"], "{file} -> -\n"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_standard_input_may_be_a_job_file(
    arguments: list[str], shown: str, given: str, tmp_path: Path
) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(YAML, encoding="utf-8")
    done = kron(*(word.format(file=file) for word in arguments), given=given)
    assert (done.returncode, done.stderr) == (GOOD, "")
    assert done.stdout.startswith(shown.format(file=file))


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("next", "-   1 entry\n"),
        pytest.param("explain", "-:3  /opt/a\n0 9 * * *   UTC\n", marks=pytest.mark.slow),
        ("lint", "no findings in 1 schedule\n"),
    ],
)
def test_standard_input_may_be_a_crontab(command: str, shown: str) -> None:
    done = kron(command, "-", given=CRONTAB)
    assert (done.returncode, done.stderr) == (GOOD, "")
    assert done.stdout.startswith(shown)


def test_problems_on_standard_input_have_their_lines() -> None:
    done = kron("next", "-", given='[\n{"identity": "a",\n"schedule": "0 9 * *"}]')
    assert done.returncode == BAD
    assert done.stderr.startswith('kron: -:3: [0].schedule "0 9 * *": Invalid cron expression')


@pytest.mark.parametrize(
    "arguments", [["plan", "-", "-"], ["simulate", "-", "-"], ["verify", "-", "-"], ["lint", "-", "-"]]
)
def test_standard_input_is_read_only_once(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == BAD
    assert capsys.readouterr() == ("", "kron: - is given twice: standard input can be read only once\n")


@pytest.mark.parametrize(
    ("name", "text"), [("p.yaml", YAML), ("p.json", JSON), ("p.cron", CRONTAB), ("p", YAML), ("p", CRONTAB)]
)
@pytest.mark.parametrize("command", ["next", "explain", "lint"])
def test_a_named_pipe_is_a_file_too(
    command: str, name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / name
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(text,))
    writer.start()
    try:
        assert run([command, str(pipe)]) == GOOD
    finally:
        writer.join()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", ["next", "explain", "lint", "simulate", "verify"])
def test_a_file_without_end_is_refused(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "/dev/zero"]) == BAD
    error = capsys.readouterr().err
    assert error.startswith('kron: Cannot read "/dev/zero": ')
    assert error.endswith(" than 64 MiB\n")


@pytest.mark.parametrize(("size", "is_read"), [(MAX_CRONTAB, True), (MAX_CRONTAB + 1, False)])
def test_the_bound_of_a_crontab_is_exact(size: int, is_read: bool, tmp_path: Path) -> None:
    file = tmp_path / "crontab"
    file.write_bytes(b"#" * size)
    if is_read:
        assert len(read_text(str(file), MAX_CRONTAB)) == size
        return
    with pytest.raises(UnreadableFileError, match="larger than 4 MiB"):
        read_source(str(file))


# --- control characters ----------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["next", "explain"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("evil.cron", "0 9 * * * echo \x1b[31m\x07\x00\n", id="a command"),
        pytest.param(
            "evil.json",
            '{"identity": "a\\u001b[31m\\u0007", "schedule": "0 9 * * *", "seed": {"salt": "\\u0001"}}',
            id="an identity and a salt",
        ),
    ],
)
def test_control_characters_of_a_file_cannot_reach_the_terminal(
    command: str, name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    assert run([command, str(file)]) == GOOD
    shown = capsys.readouterr().out
    assert "\\x1b[31m\\x07" in shown
    assert not set(shown) & {"\x1b", "\x07", "\x00", "\x01"}


# --- lines of a crontab that name no time, and users -----------------------------------------------


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("crontab").write_text("@Reboot root /opt/up\n0 9 * * * root /opt/a\n", encoding="utf-8")
    return "crontab"


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("next", "T09:00:00Z  crontab:2  /opt/a\n"),
        ("explain", "crontab:2  /opt/a\n"),
        ("lint", "no findings in 1 schedule\n"),
    ],
)
def test_reboot_entries_are_ignored_with_a_note(
    command: str, shown: str, system: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, system, "--system"]) == GOOD
    told = capsys.readouterr()
    assert shown in told.out
    assert told.err == "kron: note: crontab:1: @Reboot has no time and is ignored\n"


@pytest.mark.parametrize(("command", "code"), [("next", BAD), ("explain", BAD), ("lint", GOOD)])
def test_a_crontab_with_reboot_entries_only_has_no_times(
    command: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "crontab"
    file.write_text("@reboot /opt/up\n", encoding="utf-8")
    assert run([command, str(file)]) == code
    assert ("it has no times" in capsys.readouterr().err) is (code == BAD)


def test_an_unknown_zone_has_the_same_line_in_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("crontab").write_text("# zone\nCRON_TZ=Mars\n0 9 * * * a\n", encoding="utf-8")
    for command, code in (("next", BAD), ("explain", BAD), ("lint", NO)):
        assert run([command, "crontab"]) == code
        told = capsys.readouterr()
        assert "crontab:2: " in (told.err or told.out).splitlines()[0]
