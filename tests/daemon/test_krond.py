"""krond with real processes: job files, fields of the host, control, outputs, and one instance."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kron.cli.krond import run
from kron.cli.main import INTERRUPTED
from kron.core.job.outcome import Reason
from kron.core.plan.record import RunRecord, RunStatus
from kron.fronts.service.runs import latest_start
from tests.daemon.krond import PROGRAM, Krond
from tests.waiting import awaited, wait_for

FILE = """\
jobs:
  - name: often
    schedule: "* * * * * *"
    deadline: 30s
    command: echo "$KRON_IDENTITY $KRON_PERIOD_ID"
  - {{ name: fails, schedule: "0 0 1 1 *", command: [sh, -c, "echo no room; exit 3"] }}
  - {{ name: codes, schedule: "0 0 1 1 *", command: exit 3, success_exit_codes: [0, 3] }}
  - {{ name: input, schedule: "0 0 1 1 *", command: [cat], stdin: "two\\nlines" }}
  - name: surroundings
    schedule: "0 0 1 1 *"
    command: 'pwd; umask; nice; echo "$COLOUR $SIZE $PLAIN"'
    cwd: {folder}
    umask: "027"
    nice: 5
    env_file: {folder}/variables
    env: {{ SIZE: large }}
  - {{ name: list, schedule: "0 0 1 1 *", shell: true, command: [echo, "$((1 + 1))"] }}
  - name: flood
    schedule: "0 0 1 1 *"
    command: "echo first; yes | head -c 3000000; echo last"
    launcher: {{ max_output: 4096 }}
  - {{ name: silent, schedule: "0 0 1 1 *", command: "echo unheard; echo heard >&2", stdout: discard }}
  - name: filed
    schedule: "0 0 1 1 *"
    command: echo a line of output
    stdout: {{ file: {folder}/out.log, max_size: 5, keep: 2 }}
  - {{ name: gated, schedule: "0 0 1 1 *", command: "until [ -e {folder}/go ]; do sleep 0.05; done" }}
  - {{ name: missing, schedule: "0 0 1 1 *", command: [no-such-command-here] }}
  - {{ name: stranger, schedule: "0 0 1 1 *", command: [id], user: no-such-user }}
  - {{ name: found, schedule: "0 0 1 1 *", command: [id, -un], user: nobody }}
  - {{ name: nobody, schedule: "0 0 1 1 *", command: "id -u; id -G; echo $HOME $USER; umask", user: nobody }}
"""


@pytest.fixture(scope="module")
def krond(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Krond]:
    folder = tmp_path_factory.mktemp("krond")
    (folder / "variables").write_text("# a comment\nCOLOUR='dark blue'\nSIZE=small\nexport PLAIN=x\n")
    krond = Krond(folder)
    krond.write("host.yaml", FILE.format(folder=folder))
    krond.start()
    yield krond
    assert krond.stop() == 0, krond.log_text()


def test_a_job_of_a_file_runs_at_its_times_and_its_output_is_kept(krond: Krond) -> None:
    wait_for(lambda: len(krond.runs("host/often")) >= 2, krond.log_text)
    done = wait_for(lambda: [run for run in krond.runs("host/often") if run["status"] == "SUCCESS"])
    run = done[0]
    assert krond.output("host/often", run["idempotency_key"]) == f"host/often {run['run_at']}\n"
    assert len({each["run_at"] for each in krond.runs("host/often")}) == len(krond.runs("host/often"))


def test_a_failed_run_has_its_exit_status_and_its_last_lines(krond: Krond) -> None:
    run = krond.run("host/fails")
    assert (run["status"], run["error"]) == ("FAILED", "exit status 3: no room")
    document = krond.call("logs", "host/fails", None)
    assert (document["code"], document["bytes"], document["ended"]) == (3, 8, True)
    assert document["cpu_s"] >= 0
    assert document["max_rss_kb"] > 0


@pytest.mark.parametrize(
    ("name", "output"),
    [
        pytest.param("codes", "", id="an exit code that is a success"),
        pytest.param("input", "two\nlines", id="standard input"),
        pytest.param(
            "surroundings", "{folder}\n0027\n5\ndark blue large x\n", id="folder, mask, niceness, env"
        ),
        pytest.param("list", "2\n", id="a list for a shell"),
        pytest.param("silent", "heard\n", id="a discarded stream"),
    ],
)
def test_a_process_has_the_surroundings_of_its_definition(krond: Krond, name: str, output: str) -> None:
    run = krond.run(f"host/{name}")
    assert run["status"] == "SUCCESS", run
    expected = output.format(folder=krond.config.parent)
    assert krond.output(f"host/{name}", run["idempotency_key"]) == expected


def test_a_run_and_its_job_have_the_phase_of_their_period(krond: Krond) -> None:
    def phases() -> tuple[str, str]:
        return krond.call("schedule", "host/gated")["phase"], krond.runs("host/gated")[0]["phase"]

    assert krond.call("schedule", "host/gated")["phase"] == "Planned"
    key = krond.call("run", "host/gated")["idempotency_key"]
    wait_for(lambda: phases() == ("Running", "Running"), krond.log_text)
    (krond.config.parent / "go").touch()
    assert krond.ended("host/gated", key)["phase"] == "Completed"
    # The manual run has ended, and the next period of the schedule lies ahead.
    assert phases() == ("Planned", "Completed")


def test_of_a_long_output_the_start_and_the_end_are_kept(krond: Krond) -> None:
    run = krond.run("host/flood")
    text = krond.output("host/flood", run["idempotency_key"])
    assert text.startswith("first\ny\n")
    assert text.endswith("y\nlast\n")
    assert "bytes left out" in text
    assert len(text) < 4_200
    assert krond.call("logs", "host/flood", None)["bytes"] == 3_000_011


def test_a_file_of_output_is_rotated(krond: Krond) -> None:
    for _ in range(4):
        assert krond.run("host/filed")["status"] == "SUCCESS"
    folder = krond.config.parent
    kept = sorted(path.name for path in folder.glob("out.log*"))
    assert kept == ["out.log", "out.log.1", "out.log.2"]
    assert {(folder / name).read_text() for name in kept} == {"a line of output\n"}


@pytest.mark.parametrize(
    ("name", "error"),
    [
        pytest.param("missing", "No such file", id="no such command"),
        pytest.param("stranger", "there is no user no-such-user", id="no such user"),
    ],
)
def test_a_process_that_cannot_start_is_a_failed_launch(krond: Krond, name: str, error: str) -> None:
    run = krond.run(f"host/{name}")
    assert (run["status"], run["result"]) == ("FAILED", "launch_failed")
    assert error in run["error"]
    logs = krond.call("logs", f"host/{name}", None)
    assert logs["note"] == f"it did not start: {run['error']}"


@pytest.mark.parametrize("keys", [("a", "b"), ("b", "a")], ids=["in the order of keys", "against it"])
def test_of_runs_that_one_wake_started_the_latest_is_the_one_requested_last(keys: tuple[str, str]) -> None:
    earlier, later = (
        RunRecord(key, "job", 60, 60_000, RunStatus.STARTED, Reason.ASKED, created_at, 1, started_at=61_000)
        for key, created_at in zip(keys, (60_001, 60_002), strict=True)
    )
    assert latest_start([earlier, later]) is latest_start([later, earlier]) is later
    # A run that was requested before and started after both is the latest.
    assert latest_start([later, earlier._replace(started_at=61_001)]).key == earlier.key


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes users")
def test_a_process_of_another_user_has_that_users_groups_alone(krond: Krond) -> None:
    run = krond.run("host/nobody")
    assert run["status"] == "SUCCESS", run
    uid, groups, names, _ = krond.output("host/nobody", run["idempotency_key"]).splitlines()
    expected = subprocess.run(
        ["id", "-G", "nobody"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert int(uid) != 0
    assert sorted(groups.split()) == sorted(expected)
    assert "0" not in groups.split()
    assert names.endswith(" nobody")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes users")
def test_a_command_of_another_user_is_found_on_the_path(krond: Krond) -> None:
    run = krond.run("host/found")
    assert run["status"] == "SUCCESS", run
    assert krond.output("host/found", run["idempotency_key"]) == "nobody\n"


def test_the_state_is_private_and_has_one_krond(krond: Krond) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in krond.state.iterdir()}
    assert stat.S_IMODE(krond.state.stat().st_mode) == 0o700
    assert {mode & 0o077 for name, mode in modes.items() if name != "processes"} == {0}
    argv = [sys.executable, "-c", PROGRAM, "--config", str(krond.config), "--state", str(krond.state)]
    second = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert f"Another krond (process {krond.pid})" in second.stderr
    assert krond.call("health")["worker"] == "running"


def test_a_pause_is_a_flag_of_its_own_and_a_manual_run_starts_all_the_same(krond: Krond) -> None:
    krond.call("pause", "host/codes", True, reason="maintenance")
    run = krond.run("host/codes")
    assert run["status"] == "SUCCESS"
    assert krond.call("schedule", "host/codes")["paused"] is True
    krond.call("pause", "host/codes", False)
    assert krond.call("schedule", "host/codes")["paused"] is False


@pytest.mark.slow
def test_commands_reach_krond_over_its_socket(krond: Krond) -> None:
    env = {**os.environ, "KRON_SERVER": f"unix:{krond.state}/krond.sock", "NO_COLOR": "1"}

    def kron(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "kron", *words]
        return subprocess.run(argv, capture_output=True, text=True, env=env, check=False)

    krond.run("host/fails")
    status = kron("status")
    assert status.returncode == 0, status.stderr
    assert "worker: running" in status.stdout
    assert "host/often" in status.stdout
    assert "Planned" in next(line for line in status.stdout.splitlines() if "host/list" in line)
    logs = kron("logs", "host/fails")
    assert logs.returncode == 1
    assert logs.stdout.startswith("no room\n-- ")
    assert "exit status 3" in logs.stdout
    why = kron("why", "host/nothing")
    assert why.returncode == 1
    assert "host/nothing" in why.stderr


@pytest.mark.slow
def test_a_schedule_of_krond_is_pointed_out_where_a_store_in_the_folder_does_not_have_it(
    krond: Krond, tmp_path: Path
) -> None:
    env = {**os.environ, "KROND_STATE": str(krond.state), "NO_COLOR": "1"}

    def kron(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "kron", *words]
        return subprocess.run(argv, capture_output=True, text=True, env=env, cwd=tmp_path, check=False)

    assert kron("migrate", f"sqlite:///{tmp_path / 'kron.db'}").returncode == 0
    why = kron("why", "host/often")
    assert why.returncode == 1
    assert why.stderr == (
        'kron: There is no schedule "host/often" in the namespace service of the store;'
        " there is one with --server krond\n"
    )
    assert kron("runs", "host/often", "--server", "krond").returncode == 0


@pytest.mark.slow
def test_the_log_has_the_whole_certificate_of_a_decision(tmp_path: Path) -> None:
    krond = Krond(tmp_path, "--log-format", "json")
    krond.write("a.yaml", '{identity: a, schedule: "* * * * * *", deadline: 30s, command: "true"}')
    krond.start()
    wait_for(lambda: '"event":"started"' in krond.log_text(), krond.log_text)
    krond.stop()
    lines = [line for line in krond.log_text().splitlines() if line.startswith("{")]
    (tmp_path / "decisions.jsonl").write_text("\n".join(lines) + "\n")
    verify = [sys.executable, "-m", "kron", "verify", "--skip-others", str(tmp_path / "decisions.jsonl")]
    verified = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "seed_hash" in krond.log_text()


def test_only_files_whose_name_is_part_of_an_identity_are_pointed_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rest = 'schedule: "0 0 * * *", command: "true"'
    (tmp_path / "named.yaml").write_text(f"[{{name: a, {rest}}}]")
    # An identity that is written in the file stays when the file is renamed, whatever it looks like.
    (tmp_path / "explicit.yaml").write_text(f"[{{identity: explicit/a, {rest}}}]")
    assert run(["--check", "--config", str(tmp_path)]) == 0
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == [
        "named.yaml",
        "2 jobs in 2 files",
    ]


@pytest.mark.slow
def test_jobs_are_applied_exported_and_followed_over_the_socket(krond: Krond, tmp_path: Path) -> None:
    env = {**os.environ, "KRON_SERVER": f"unix:{krond.state}/krond.sock", "NO_COLOR": "1"}

    def kron(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "kron", *words]
        return subprocess.run(argv, capture_output=True, text=True, env=env, check=False)

    file, go = tmp_path / "more.yaml", tmp_path / "go"
    gate = f"echo first; until [ -e {go} ]; do sleep 0.05; done; echo last; exit 4"
    file.write_text(f'[{{identity: more/slow, schedule: "0 0 1 1 *", command: "{gate}", tags: [more]}}]')
    applied = kron("apply", "--yes", str(file))
    assert applied.returncode == 0, applied.stderr
    assert "more/slow" in krond.names()
    exported = kron("export", "--tag", "more")
    assert exported.returncode == 0, exported.stderr
    assert yaml.safe_load(exported.stdout)["jobs"][0]["identity"] == "more/slow"
    # The export is a file that changes nothing.
    (tmp_path / "exported.yaml").write_text(exported.stdout)
    assert kron("diff", str(tmp_path / "exported.yaml")).returncode == 0
    # A job of krond's own files is changed there.
    own = kron("diff", str(krond.config / "host.yaml"))
    assert f"~ host/codes: is a job of {krond.config}/host.yaml, which krond loads again: edit" in own.stdout
    krond.call("run", "more/slow")
    wait_for(lambda: krond.runs("more/slow")[0]["status"] == "STARTED" and krond.output("more/slow"))
    argv = [sys.executable, "-m", "kron", "logs", "more/slow", "--follow"]
    with awaited(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env)) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "first\n"
        go.touch()
        assert follower.stdout.readline() == "last\n"
        assert "exit status 4" in follower.stdout.readline()
    assert follower.returncode == 1


@pytest.mark.slow
def test_files_with_problems_are_named_with_their_lines(tmp_path: Path) -> None:
    krond = Krond(tmp_path)
    krond.write("good.yaml", '{identity: good, schedule: "0 0 * * *", command: "true"}')
    krond.write("bad.yaml", 'jobs:\n  - identity: bad\n    schedule: "61 * * * *"\n    command: x\n')
    krond.write("idle.yaml", '{identity: idle, schedule: "0 0 * * *"}')
    argv = [sys.executable, "-c", PROGRAM, "--config", str(krond.config), "--check"]
    check = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert check.returncode == 2
    assert f"{krond.config}/bad.yaml:3: " in check.stderr
    assert 'job "idle" has neither a command nor a launcher' in check.stderr
    assert check.stdout == "1 job in 2 files\n"


def test_an_interrupted_krond_says_nothing_odd(tmp_path: Path) -> None:
    pipe = tmp_path / "jobs.yaml"
    os.mkfifo(pipe)
    argv = [sys.executable, "-c", PROGRAM, "--config", str(pipe), "--check"]
    # Opening a pipe to write waits for its reader: krond, which then waits for the jobs.
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as checking, pipe.open("w"):
        checking.send_signal(signal.SIGINT)
        _, error = checking.communicate(timeout=60)
    assert (checking.returncode, error) == (INTERRUPTED, "")
