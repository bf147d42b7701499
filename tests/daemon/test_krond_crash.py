"""krond killed and restarted while processes run: every period once, every end known, nothing left."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from kron.launchers.process.host import is_alive, processes_of
from kron.launchers.process.supervisor.record import read_record
from tests.daemon.krond import Krond
from tests.waiting import wait_for

KILLS = 4


@pytest.mark.slow
def test_a_krond_killed_again_and_again_starts_every_period_once_and_knows_every_end(tmp_path: Path) -> None:
    ledger, krond = tmp_path / "ledger", Krond(tmp_path)
    ledger.touch()
    # Many processes outlive the krond that started them; some fail, fork or flood, all ignore SIGTERM.
    work = {0: "sleep 0.$((RANDOM % 9))", 1: "(sleep 1 &)", 2: "head -c 2000000 /dev/zero"}
    command = 'trap "" TERM; echo "$KRON_IDENTITY $KRON_PERIOD_ID" >> {}; {}; exit $0'
    often = "schedule: '* * * * * *', concurrency: allow, deadline: 1m"
    jobs = [
        f"{{ name: j{code}, {often}, command: [bash, -c, '{command.format(ledger, work[code])}', '{code}'] }}"
        for code in range(3)
    ]
    if os.geteuid() == 0:
        # It cannot write the ledger.
        jobs.append(f"{{ name: other, {often}, user: nobody, command: [sleep, '0.3'] }}")
    krond.write("all.yaml", f"[{', '.join(jobs)}]\n")
    for _ in range(KILLS):
        krond.start()
        enough = len(ledger.read_text().splitlines()) + 4
        wait_for(partial(_has_lines, ledger, enough), krond.log_text)
        krond.kill()
    krond.start()
    names = [f"all/j{code}" for code in range(3)]
    others = ["all/other"] if os.geteuid() == 0 else []
    for name in (*names, *others):
        krond.call("pause", name, True)
    every = [*names, *others]
    wait_for(lambda: not any(run["status"] == "STARTED" for name in every for run in krond.runs(name)))
    for name in others:
        executed_there = [run for run in krond.runs(name) if run["attempt"]]
        assert executed_there
        assert all(run["status"] == "SUCCESS" or "never started" in run["error"] for run in executed_there)
    rows = {f"{name} {run['run_at']}": run for name in names for run in krond.runs(name)}
    krond.stop()
    started = Counter(ledger.read_text().splitlines())
    assert set(started.values()) == {1}
    assert len(started) > 3 * KILLS
    never = {period for period, run in rows.items() if "never started" in (run["error"] or "")}
    executed = {period for period, run in rows.items() if run["attempt"]}
    assert set(started) == executed - never
    for period in started:
        run, code = rows[period], int(period.split()[0][-1])
        assert run["status"] == ("FAILED" if code else "SUCCESS"), (run, krond.log_text())
        assert (run["error"] or "").startswith(f"exit status {code}" if code else ""), run


def _has_lines(file: Path, count: int) -> bool:
    return len(file.read_text().splitlines()) >= count


@pytest.mark.slow
def test_a_process_that_outlives_its_krond_keeps_its_end_and_its_output(tmp_path: Path) -> None:
    krond, go = Krond(tmp_path), tmp_path / "go"
    command = f"echo before; until [ -e {go} ]; do sleep 0.05; done; echo after; exit 7"
    krond.write("a.yaml", f'{{identity: a, schedule: "0 0 1 1 *", command: "{command}"}}')
    krond.start()
    key = krond.call("run", "a")["idempotency_key"]
    wait_for(lambda: krond.runs("a")[0]["status"] == "STARTED" and krond.output("a") == "before\n")
    pid = krond.call("logs", "a", None)["pid"]
    krond.kill()
    go.touch()
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"))
    krond.start()
    run = krond.ended("a", key)
    assert (run["status"], run["error"]) == ("FAILED", "exit status 7: before\nafter")
    assert krond.output("a") == "before\nafter\n"
    # One more that still runs when the next krond comes, and is killed then.
    go.unlink()
    key = krond.call("run", "a")["idempotency_key"]
    pid = wait_for(lambda: _running_pid(krond, key))
    assert krond.stop() == 0
    krond.start()
    os.kill(pid, signal.SIGKILL)
    assert krond.ended("a", key)["error"].startswith("killed by SIGKILL")
    krond.stop()


def _has_no_process(key: str) -> bool:
    """Return whether no process of this host has the environment of a run."""
    for place in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"KRON_IDEMPOTENCY_KEY={key}\0".encode() in place.read_bytes():
                return False
    return True


def _running_pid(krond: Krond, key: str) -> int | None:
    if not any(run["idempotency_key"] == key and run["status"] == "STARTED" for run in krond.runs("a")):
        return None
    found: int | None = krond.call("logs", "a", None, key=key).get("pid")
    return found


@pytest.mark.slow
def test_replace_and_run_timeout_end_every_process_of_a_run(tmp_path: Path) -> None:
    krond = Krond(tmp_path)
    # A child that left the session and ignores SIGTERM, as daemons do.
    command = "setsid sh -c 'trap \\\"\\\" TERM; sleep 300' & sleep 300"
    command = f'replace_grace: 100ms, command: "{command}"'
    often = 'schedule: "*/2 * * * * *", deadline: 1m, concurrency: replace'
    once = 'schedule: "0 0 1 1 *", run_timeout: 500ms'
    krond.write("a.yaml", f"[{{identity: a, {often}, {command}}}, {{identity: b, {once}, {command}}}]")
    krond.start()
    wait_for(lambda: sum(run["status"] == "CANCELLED" for run in krond.runs("a")) >= 2, krond.log_text)
    replaced = [run for run in krond.runs("a") if run["status"] == "CANCELLED"]
    assert {run["result"] for run in replaced} == {"replaced"}
    timed_out = krond.run("b")
    assert (timed_out["status"], timed_out["result"]) == ("FAILED", "lost")
    for run in (*replaced, timed_out):
        wait_for(partial(_has_no_process, run["idempotency_key"]))
    krond.call("pause", "a", True)
    keys = [run["idempotency_key"] for run in krond.runs("a")]
    krond.write("a.yaml", "[]")
    krond.stop()
    for key in keys:
        for pid in processes_of(key, 1, -1):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_job_files_are_reloaded_as_a_whole_and_a_broken_one_keeps_its_jobs(tmp_path: Path) -> None:
    krond, go = Krond(tmp_path), tmp_path / "go"
    krond.write(
        "a.yaml",
        '[{identity: a1, schedule: "0 1 * * *", command: "true"},'
        '{identity: a2, schedule: "0 2 * * *", command: [sleep, "300"], on_remove: terminate},'
        f'{{identity: a3, schedule: "0 2 * * *", command: "until [ -e {go} ]; do sleep 0.05; done"}}]',
    )
    krond.write("b.yaml", '{identity: b, schedule: "* * * * * *", deadline: 1m, command: "true"}')
    krond.start()
    assert krond.names() == ["a1", "a2", "a3", "b"]
    key, kept = (krond.call("run", name)["idempotency_key"] for name in ("a2", "a3"))
    krond.call("pause", "a1", True)
    wait_for(lambda: krond.runs("a2")[0]["status"] == krond.runs("a3")[0]["status"] == "STARTED")
    wait_for(lambda: len(krond.runs("b")) >= 1)
    # A broken file, seen by its change alone: its jobs stay, and the other file changes.
    krond.write("a.yaml", "[{identity: a1,\n schedule: never}]")
    krond.write("c.yaml", '{identity: c, schedule: "0 3 * * *", command: "true"}')
    (krond.config / "b.yaml").unlink()
    wait_for(lambda: krond.names() == ["a1", "a2", "a3", "c"], krond.log_text)
    wait_for(lambda: "- b: would have started" in krond.log_text(), krond.log_text)
    assert f"{krond.config}/a.yaml:2: " in krond.log_text()
    # Mended, by SIGHUP: the pause stays, a removed job's process is ended, a moved start is named.
    krond.write("a.yaml", '[{identity: a1, schedule: "0 4 * * *", command: "true"}]')
    krond.signal(signal.SIGHUP)
    wait_for(lambda: krond.names() == ["a1", "c"], krond.log_text)
    assert krond.ended("a2", key)["status"] == "CANCELLED"
    # The other one's goes on, and its end is recorded.
    assert krond.runs("a3")[0]["status"] == "STARTED"
    go.touch()
    assert krond.ended("a3", kept)["status"] == "SUCCESS"
    assert krond.call("schedule", "a1")["paused"] is True
    wait_for(lambda: "~ a1: next start moves from" in krond.log_text(), krond.log_text)
    # A job that returns continues: no period runs twice.
    krond.write("b.yaml", '{identity: b, schedule: "* * * * * *", deadline: 1m, command: "true"}')
    krond.signal(signal.SIGHUP)
    count = len(krond.runs("b"))
    wait_for(lambda: len(krond.runs("b")) > count, krond.log_text)
    times = [run["run_at"] for run in krond.runs("b")]
    assert len(times) == len(set(times))
    krond.stop()


@pytest.mark.slow
def test_a_suspend_of_the_file_and_a_pause_are_two_flags(tmp_path: Path) -> None:
    krond = Krond(tmp_path)
    job = '{{identity: a, schedule: "0 1 * * *", suspend: {}, command: "true"}}'
    krond.write("a.yaml", job.format("true"))
    krond.start()
    krond.call("pause", "a", True, reason="mine")
    assert "suspend" in krond.call("pause", "a", False)["note"]
    krond.call("pause", "a", True, reason="mine")
    krond.write("a.yaml", job.format("false"))
    krond.signal(signal.SIGHUP)
    wait_for(lambda: not krond.call("schedule", "a")["suspended"], krond.log_text)
    assert krond.call("schedule", "a")["paused"] is True
    krond.stop()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root is refused files of others")
def test_root_refuses_job_files_that_others_could_write(tmp_path: Path) -> None:
    krond = Krond(tmp_path)
    krond.write("a.yaml", '{identity: a, schedule: "0 1 * * *", command: "true"}')
    krond.write("b.yaml", '{identity: b, schedule: "0 1 * * *", command: "true"}').chmod(0o666)
    krond.start()
    assert krond.names() == ["a"]
    wait_for(lambda: "b.yaml: can be written by others" in krond.log_text(), krond.log_text)
    krond.stop()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_full_disk_costs_no_end_and_starts_nothing_twice(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(state)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this host mounts nothing")
    try:
        krond, ledger = Krond(tmp_path), tmp_path / "ledger"
        ledger.touch()
        command = f'echo "$KRON_PERIOD_ID" >> {ledger}; sleep 0.3; exit 4'
        krond.write("a.yaml", f"{{identity: a, schedule: '* * * * * *', deadline: 1h, command: '{command}'}}")
        krond.start()
        wait_for(lambda: len(ledger.read_text().splitlines()) >= 2, krond.log_text)
        filler = state / "filler"
        with suppress(OSError), filler.open("wb") as file:
            while file.write(b"x" * 4096):
                file.flush()
        time.sleep(3)
        filler.unlink()
        count = len(ledger.read_text().splitlines())
        wait_for(lambda: len(ledger.read_text().splitlines()) > count + 1, krond.log_text)
        krond.call("pause", "a", True)
        wait_for(lambda: not any(run["status"] == "STARTED" for run in krond.runs("a")), krond.log_text)
        runs = {run["run_at"]: run for run in krond.runs("a") if run["attempt"]}
        started = Counter(ledger.read_text().splitlines())
        assert set(started.values()) == {1}
        assert set(started) <= set(runs)
        assert {runs[period]["error"] for period in started} == {"exit status 4"}
        krond.stop()
    finally:
        subprocess.run(["umount", "-l", str(state)], check=False)


@pytest.mark.slow
def test_a_run_that_was_lost_with_its_supervisor_is_said_to_be_lost_and_keeps_its_output(
    tmp_path: Path,
) -> None:
    krond = Krond(tmp_path)
    ready = tmp_path / "ready"
    command = f"echo before; touch {ready}; sleep 300"
    krond.write("a.yaml", f'{{identity: a, schedule: "0 0 1 1 *", command: "{command}"}}')
    krond.start()
    key = krond.call("run", "a")["idempotency_key"]
    wait_for(ready.exists, krond.log_text)
    (place,) = krond.state.rglob(f"{key}.1.run")
    wait_for(lambda: (read_record(str(place)) or {}).get("state") == "running", krond.log_text)
    record = json.loads(place.read_bytes())
    # As when the host loses its power.
    krond.kill()
    for pid in (record["supervisor"], record["pid"]):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(record["pid"], record["started"]))
    krond.start()
    assert krond.ended("a", key)["result"] == "orphaned"
    assert "lost: its worker ended while it ran" in kron(krond, "runs", "a")
    lines = kron(krond, "logs", "a").splitlines()
    assert (lines[0], lines[1].partition(": ")[2]) == ("before", "its end is unknown, 7 bytes of output")
    assert krond.stop() == 0


def kron(krond: Krond, *words: str) -> str:
    """Return what a command of the command line prints about a krond."""
    argv = [sys.executable, "-m", "kron", *words, "--server", f"unix:{krond.state}/krond.sock"]
    # `kron logs` of a run without success has an exit code of its own.
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout
