"""`kron dag`: files are stored and run, slots caught up, runs listed, retried and cancelled."""

import json
from collections.abc import Iterator
from pathlib import Path
from signal import SIGTERM
from typing import Any

import pytest

from kron.cli.main import BAD, GOOD, NO, run
from tests.service.server import Process, serving
from tests.service.test_dag import VARIABLES, sh
from tests.waiting import wait_for

ROOT, EXAMPLE = Path(__file__).parents[2], "examples/etl_dag.py"
BROKEN = """
from pathlib import Path
from kron.dag import dag, task

@task
def first():
    return 7

@task
def second(value):
    if not Path({gate!r}).exists():
        raise ValueError("the gate is closed")
    return value + 1

@dag
def steps():
    second(first())
"""


class Shell:
    def __init__(self, store: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.store, self.capsys = store, capsys

    def __call__(self, *words: str, code: int = GOOD) -> str:
        assert run(["dag", *words, "--store", self.store]) == code
        return self.capsys.readouterr().out

    def read(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(f"sqlite:///{tmp_path / 'kron.db'}", capsys)


def test_the_example_runs_in_a_terminal_with_its_progress(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dag", "run", EXAMPLE, "--date", "2026-06-03"]) == GOOD
    out = capsys.readouterr().out
    assert "  extract | rows of 2026-06-03" in out
    assert "  load | loaded 3 rows" in out
    assert out.endswith("etl:2026-06-03T00:00:00Z: success\n")


@pytest.mark.parametrize("way", ["KRON_STORE", "KRON_STORE_FILE", "KRON_CONFIG"])
def test_the_store_of_dags_is_that_of_the_settings(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url, file = f"sqlite:///{tmp_path / 'elsewhere.db'}", tmp_path / "setting"
    file.write_text(f'store = "{url}"' if way == "KRON_CONFIG" else url, encoding="utf-8")
    monkeypatch.setenv(way, url if way == "KRON_STORE" else str(file))
    monkeypatch.chdir(tmp_path)
    example = str(ROOT / EXAMPLE)
    assert run(["dag", "put", example]) == run(["dag", "trigger", "etl", "--date", "2026-06-01"]) == GOOD
    capsys.readouterr()
    assert run(["dag", "list", "--json", "--store", url]) == GOOD
    assert [dag["dag_id"] for dag in json.loads(capsys.readouterr().out)["dags"]] == ["etl"]
    assert not (tmp_path / "kron.db").exists()


def test_a_catchup_lists_its_slots_and_is_continued_by_the_same_command(shell: Shell) -> None:
    shell("put", EXAMPLE)
    words = ("catchup", "etl", "--from", "2026-06-01", "--to", "2026-06-01T23:00:00Z", "--every", "1h")
    dry = shell.read(*words, "--dry-run")
    assert dry["requested_slot_count"] == 24
    assert shell.read("runs") == {"runs": []}
    for hour in ("00", "07", "23"):
        shell("trigger", "etl", "--date", f"2026-06-01T{hour}:00:00Z")
    existing = {f"2026-06-01T{hour}:00:00Z": "queued" for hour in ("00", "07", "23")}
    assert shell.read(*words, "--dry-run")["existing_runs"] == existing
    lines = shell(*words, "--dry-run").splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["SLOT", "RUN"],
        ["2026-06-01T00:00:00Z", "queued"],
        ["2026-06-01T01:00:00Z", "starts"],
    ]
    assert lines[-1] == "24 slots: 21 would start, 3 have a run; nothing was started"
    counts = {"requested_slot_count": 24, "started": 21, "existing": 3}
    assert shell.read(*words, "--rate", "1000") == counts
    assert shell.read(*words) == {**counts, "started": 0, "existing": 24}
    assert "24 slots: 0 started, 24 had a run before" in shell(*words)
    (dag,) = shell.read("list")["dags"]
    assert (dag["dag_id"], dag["queued"], dag["paused"]) == ("etl", 24, False)
    shell(*words, "--max", "23", code=BAD)


def test_a_failed_run_is_shown_retried_and_its_output_printed(shell: Shell, tmp_path: Path) -> None:
    gate, file = tmp_path / "gate", tmp_path / "steps.py"
    file.write_text(BROKEN.format(gate=str(gate)))
    out = shell("run", str(file), "--date", "2026-06-01", code=NO)
    assert "ValueError: the gate is closed" in out
    (listed,) = shell.read("runs", "--status", "failed")["runs"]
    run_id = listed["run_id"]
    assert "the gate is closed" in shell("tasks", run_id)
    lines = shell("logs", run_id, "second").splitlines()
    assert lines[:2] == [
        "== second, attempt 1: failed ValueError: the gate is closed",
        "Traceback (most recent call last):",
    ]
    # The code that called the function is left out.
    assert lines[2].endswith('steps.py", line 12, in second')
    gate.touch()
    assert "queued" in shell("retry", run_id)
    shell("run", str(file), "--date", "2026-06-01")
    tasks = {each["task_id"]: each for each in shell.read("tasks", run_id)["tasks"]}
    assert [(each["status"], each["attempt"]) for each in tasks.values()] == [("success", 1), ("success", 2)]
    shell("retry", run_id, "first")
    assert "cancelled" in shell("cancel", run_id)
    assert shell.read("show", "steps")["version"] == 1


POOLED = """
from kron.dag import dag, task

@task(pool="db")
def first():
    print("first")

@task(pool="db")
def second():
    raise ValueError("no")

@dag
def pooled():
    first() >> second()
"""


def test_a_try_in_memory_needs_no_pool_and_prints_each_task_once(
    tmp_path: Path, shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "pooled.py"
    file.write_text(POOLED)
    assert run(["dag", "run", str(file), "--date", "2026-06-03"]) == NO
    out = shell.capsys.readouterr().out
    assert out.index("  first | first") < out.index("success         first") < out.index("  second | ")
    assert (out.count("Traceback"), caplog.records) == (1, [])
    shell("run", str(file), "--date", "2026-06-03", code=BAD)


def test_a_paused_dag_and_a_pool_are_set(shell: Shell) -> None:
    shell("put", EXAMPLE)
    assert shell("pause", "etl") == "etl: paused\n"
    assert "paused" in shell("list")
    assert shell("resume", "etl") == "etl: resumed\n"
    assert shell("pool", "db", "2") == "db: 2 slots\n"


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("run", "absent.py"), BAD, "there is no such file"),
        (("run", EXAMPLE, "--dag", "other"), BAD, "use one of etl"),
        (("trigger", "absent", "--date", "2026-06-01"), NO, "no published version"),
        (("trigger", "etl", "--date", "soon"), BAD, "use ISO-8601"),
        (("trigger", "etl", "--input", "[]"), BAD, "must be a JSON object"),
        (("show", "absent"), NO, "no published version"),
        (("pause", "absent"), NO, "no published version"),
        (("tasks", "absent"), NO, "There is no run"),
    ],
)
def test_a_mistake_is_one_line(shell: Shell, words: tuple[str, ...], code: int, error: str) -> None:
    shell("put", EXAMPLE)
    assert run(["dag", *words, "--store", shell.store]) == code
    assert error in shell.capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param("x = 1\n\nraise OSError('no table')\n", "line 3: OSError: no table", id="an exception"),
        pytest.param("import absent_module\n", "line 1: ModuleNotFoundError: No module", id="an import"),
        pytest.param("x = 1\ndef (\n", "line 2: SyntaxError: invalid syntax", id="no Python"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_named_with_its_line(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, error: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text(text, encoding="utf-8")
    for file in ("broken.py", str(tmp_path / "broken.py")):
        assert run(["dag", "run", file]) == BAD
        assert shell.capsys.readouterr().err.startswith(f'kron: Cannot read "{file}": {error}')


def test_a_command_that_stores_no_dag_makes_no_database(shell: Shell, tmp_path: Path) -> None:
    for words in (["list"], ["runs"], ["tasks", "absent"], ["trigger", "etl"], ["pause", "etl"]):
        shell(*words, code=BAD)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("dags"), **VARIABLES) as (client, _):
        nodes = [sh("first", "echo first; exit 3"), sh("second", "true", "first")]
        document = {"user_id": "ann", "nodes": nodes}
        for version, more in ((1, {}), (2, {"draft": True})):
            answer = client.put(f"/workflows/etl/versions/{version}", json={**document, **more})
            assert answer.status_code == 201
        yield str(client.base_url)


def test_a_service_is_used_as_a_store_is(service: str, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: str, code: int = GOOD) -> str:
        assert run(["dag", *words, "--server", service]) == code
        return capsys.readouterr().out

    def read(*words: str) -> Any:
        return json.loads(said(*words, "--json"))

    # The latest version is a draft.
    assert read("show", "etl")["version"] == 1
    assert "second" in said("show", "etl")
    started = read("trigger", "etl", "--date", "2026-06-01")
    assert read("trigger", "etl", "--date", "2026-06-01")["created"] is False
    wait_for(lambda: read("runs", "etl", "--status", "failed")["runs"])
    run_id = started["run_id"]
    assert "exit status 3" in said("tasks", run_id)
    assert "== first, attempt 1: failed" in said("logs", run_id, "first")
    assert "etl: paused" in said("pause", "etl")
    words = ("catchup", "etl", "--from", "2026-06-01", "--to", "2026-06-06T00:00:00Z", "--every", "1h")
    counts = {"requested_slot_count": 121, "started": 120, "existing": 1}
    dry = said(*words, "--dry-run").splitlines()
    assert dry[1].split() == ["2026-06-01T00:00:00Z", "failed"]
    assert dry[-2:] == [
        "... and 71 more, the last at 2026-06-06T00:00:00Z",
        "121 slots: 120 would start, 1 has a run; nothing was started",
    ]
    assert read(*words) == counts
    assert read(*words) == {**counts, "started": 0, "existing": 121}
    assert len(read("runs", "etl", "--limit", "115")["runs"]) == 115
    (dag,) = read("list")["dags"]
    assert (dag["dag_id"], dag["paused"], dag["queued"], dag["failed"]) == ("etl", True, 120, 1)
    assert read("retry", run_id)["tasks"][0]["status"] == "queued"
    assert read("cancel", run_id)["status"] == "cancelled"
    assert "etl: resumed" in said("resume", "etl")
    said("trigger", "none", code=BAD)
    said("runs", code=BAD)
    said("list", "--store", "memory://", code=BAD)
    assert run(["dag", "list", "--server", "krond"]) == BAD


def test_a_worker_logs_its_start_its_stop_and_what_fails(tmp_path: Path, shell: Shell) -> None:
    file = tmp_path / "steps.py"
    text = BROKEN.format(gate=str(tmp_path / "gate"))
    file.write_text(text.replace("first", "upper").replace("second", "lower"), encoding="utf-8")
    shell("put", str(file))
    run_id = shell.read("trigger", "steps", "--date", "2026-06-03")["run_id"]
    worker = Process("dag", "worker", str(file), "--store", shell.store, "--name", "ann", folder=tmp_path)
    try:
        wait_for(lambda: shell.read("tasks", run_id)["status"] == "failed")
        worker.signal(SIGTERM)
        assert worker.ended() == GOOD
    finally:
        worker.close()
    lines = [line.split(" INFO ", 1)[1].rstrip() for line in worker.log]
    assert lines == [
        "kron.dag ann: executing tasks, up to 32 at once",
        f'kron.dag task "lower" of run {run_id}, attempt 1: failed: ValueError: the gate is closed',
        "kron.worker SIGTERM: stopping",
    ]
    listed = [line for line in shell("logs", run_id, code=GOOD).splitlines() if line.startswith("==")]
    assert [line.split()[1] for line in listed] == ["upper,", "lower,"]
