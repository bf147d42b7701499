"""`kron conform`: verdict, blame, timeline, JSON, and unreadable traces."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kron.cli.main import BAD, GOOD, NO, run
from tests.theory.notation import lines_of

KRON = Path(sys.executable).with_name("kron")
LAWFUL = "IS IEs Due RS REs"
UNLAWFUL = "IS=AB IEs Min+Due:a+Due:b RS:a SS RS:b REs:a REs:b SE"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "trace.jsonl"


def write(file: Path, text: str, **header: object) -> str:
    file.write_text("\n".join(lines_of(text, **header)) + "\n", encoding="utf-8")
    return str(file)


def test_a_lawful_trace_conforms(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["conform", write(file, LAWFUL)]) == GOOD
    told = capsys.readouterr()
    assert told.out.splitlines()[0] == f"{file}: conforms"
    assert "    S1  passed\n" in told.out
    assert told.err == ""


def test_a_violation_is_shown_with_its_place_its_reason_and_a_picture(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["conform", write(file, UNLAWFUL)]) == NO
    lines = capsys.readouterr().out.splitlines()
    head = f"{file}: violates; S1 is violated first, at position 5, by the scheduler"
    assert lines[0] == head
    assert '  ! S1  failed        at 5       "b" starts while the scheduler is not active' in lines
    drawn = lines[lines.index("    position          t  a  b") :]
    assert drawn[3:8] == [
        "           2          2  d  d  MinuteStart, Due a, Due b",
        "           3          3  >     RunStart a",
        "           4          4  |     StopStart call SS2",
        "           5          5  |  >  RunStart b  <-- here",
        "           6          6  <  |  RunSuccess a",
    ]


def test_the_environment_can_be_to_blame(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["conform", write(file, "IS IEs REs RS")]) == NO
    assert "EA7 is violated first, at position 2, by the environment" in capsys.readouterr().out


def test_json_has_verdict_blame_and_axioms(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["conform", write(file, UNLAWFUL), "--json"]) == NO
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["blame"], found["reading"]) == ("violates", "scheduler", "kron")
    assert found["axioms"]["S1"] == {
        "status": "failed",
        "position": 5,
        "since": None,
        "t": 5,
        "event": "RunStart b",
        "formula": "G(RS_x -> Y Obligation_x)",
        "broken": "Active_R",
        "message": '"b" starts while the scheduler is not active',
    }
    assert found["axioms"]["EA4"]["status"] == "inconclusive"
    assert len(found["axioms"]) == 16
    assert run(["conform", write(file, LAWFUL), "--json"]) == GOOD
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["blame"]) == ("conforms", None)


def test_the_literal_reading_can_be_chosen(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(file, "IS IEs IS IEs")
    assert run(["conform", str(file)]) == NO
    assert run(["conform", str(file), "--reading", "literal"]) == GOOD
    assert run(["conform", write(file, "IS IEs Crash Crash"), "--reading", "kron"]) == GOOD
    assert run(["conform", str(file), "--reading", "literal", "--json"]) == NO
    assert '"reading": "literal"' in capsys.readouterr().out


def test_happy_names_the_events_that_must_be_handled(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(file, "IS IEs Sup:clock Sup:store RS")
    assert run(["conform", str(file)]) == GOOD
    assert "out of scope from position 2 on" in capsys.readouterr().out
    assert run(["conform", str(file), "--happy", "clock"]) == GOOD
    assert run(["conform", str(file), "--happy", "clock", "--happy", "store"]) == NO
    assert run(["conform", str(file), "--happy", "clock,store"]) == NO


def test_promises_can_be_bounded_by_time(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(file, "IS IEs Due@10 RS@21")
    assert run(["conform", str(file)]) == GOOD
    assert run(["conform", str(file), "--within", "11"]) == GOOD
    assert run(["conform", str(file), "--within", "10"]) == NO
    assert '"a" is due since position 2 and 11 s have passed' in capsys.readouterr().out


def test_promises_can_be_bounded_by_compute(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(file, "C+IS C C C+IEs", compute=None)
    assert run(["conform", str(file), "--witnesses", "0,3,1"]) == GOOD
    assert "environment: lower-bounded, compute at 4 of 4 points, longest pause 0" in capsys.readouterr().out
    assert run(["conform", str(file), "--witnesses", "0,2,1"]) == NO


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        pytest.param(["--witnesses", "1,2"], "use three numbers, as in 3,0,1", id="two witnesses"),
        pytest.param(["--witnesses", "1,2,x"], 'Invalid --witnesses "x"', id="no number"),
        pytest.param(["--within", "-1"], 'Invalid --within "-1"', id="a negative span"),
        pytest.param(
            ["--reading", "mine"], 'Invalid reading "mine": use one of kron, literal', id="no reading"
        ),
    ],
)
def test_a_wrong_option_is_named(
    options: list[str], reason: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["conform", write(file, LAWFUL), *options]) == BAD
    assert reason in capsys.readouterr().err


def test_a_span_of_time_is_no_bound_where_there_is_compute(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["conform", write(file, "C+IS", compute=None), "--within", "5"]) == BAD
    assert "the trace has Compute events" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"", "line 1: the first line is not a header", id="empty"),
        pytest.param(b'{"kron_trace": 1}\nx\n', "line 2: it is not JSON", id="no JSON"),
        pytest.param(b'{"kron_trace": 1}\n\xff\n', "it is not UTF-8 text", id="no UTF-8"),
        pytest.param(
            b'{"kron_trace": 1}\n{"t": 2, "event": "Compute"}\n{"t": 1, "event": "Compute"}\n',
            "line 3: t goes back by 1",
            id="time goes back",
        ),
    ],
)
def test_an_unreadable_file_is_named(
    content: bytes, reason: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_bytes(content)
    for options in ([], ["--json"]):
        assert run(["conform", str(file), *options]) == BAD
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.startswith(f'kron: Cannot read "{file}": ')
        assert reason in told.err


def test_a_file_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["conform", str(tmp_path / "nowhere")]) == BAD
    assert "No such file or directory" in capsys.readouterr().err
    assert run(["conform", str(tmp_path)]) == BAD
    assert "Is a directory" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "code"), [(LAWFUL, GOOD), (UNLAWFUL, NO)])
def test_a_trace_can_be_piped_in(text: str, code: int) -> None:
    done = subprocess.run(
        [KRON, "conform", "-"], input="\n".join(lines_of(text)), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.startswith("-: ")


def test_control_characters_of_a_trace_do_not_reach_the_terminal(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    event = {"t": 1, "event": "RunStart", "task": "a\x1b[31m\n"}
    file.write_text('{"kron_trace": 1, "compute": "none"}\n' + json.dumps(event), encoding="utf-8")
    assert run(["conform", str(file)]) == NO
    assert "\x1b" not in capsys.readouterr().out


def test_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["conform", "--help"]) == GOOD
    assert "kron conform trace.jsonl" in capsys.readouterr().out
