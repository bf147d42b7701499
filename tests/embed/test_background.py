"""A runner in a background thread, for programs without an event loop."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import kron
from kron.errors import ConflictError, OwnedError, StoreError
from tests.waiting import PATIENCE_S, wait_for

RARELY = "0 0 29 2 *"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/kron.db"


@pytest.fixture
def runner(url: str) -> Iterator[kron.Runner]:
    made = kron.Runner(url)
    yield made
    made.stop()


def statuses(runner: kron.Runner, identity: str) -> list[str]:
    return [run.status for run in runner.wait(runner.runs(identity))]


def test_jobs_run_in_a_thread_and_their_history_can_be_read_from_another(runner: kron.Runner) -> None:
    ran: list[threading.Thread] = []

    @runner.job(RARELY)
    def blocking() -> None:
        ran.append(threading.current_thread())

    @runner.job(RARELY)
    async def waiting() -> None:
        ran.append(threading.current_thread())

    with runner:
        for name in ("blocking", "waiting"):
            runner.wait(runner.run_now(name))
            wait_for(lambda name=name: statuses(runner, name) == ["SUCCESS"])  # type: ignore[misc]
        (run,) = runner.wait(runner.runs("blocking"))
        assert run.nominal_time.tzinfo is UTC
    assert len(ran) == 2
    assert threading.main_thread() not in ran
    assert ran[1].name == "kron runner:main"
    assert not ran[1].is_alive()


def test_start_and_stop_may_be_called_as_functions_and_again(runner: kron.Runner) -> None:
    runner.stop()
    for _ in range(2):
        runner.start()
        with pytest.raises(ConflictError, match="already running"):
            runner.start()
        runner.stop()
        runner.stop()
    with pytest.raises(ConflictError, match="not running"):
        runner.wait(runner.runs("job"))


def test_a_job_added_after_the_start_is_committed_when_add_returns(runner: kron.Runner) -> None:
    with runner:
        runner.job(RARELY, identity="later")(print)
        assert statuses(runner, "later") == []
        assert runner.wait(runner.why("later", datetime(2028, 2, 29, tzinfo=UTC))).outcome is None


def test_a_start_that_fails_raises_in_the_caller(url: str, tmp_path: Path) -> None:
    with kron.Runner(url), pytest.raises(OwnedError):
        kron.Runner(url).start()
    path = tmp_path / "other.db"
    path.write_text("this is no database, and long enough to be taken for one " * 20)
    broken = kron.Runner(f"sqlite:///{path}")
    with pytest.raises(StoreError, match="not a database"):
        broken.start()
    broken.stop()
    path.unlink()
    with broken:
        pass


def test_a_stop_waits_for_running_functions(runner: kron.Runner) -> None:
    started, released, ended = threading.Event(), threading.Event(), threading.Event()

    @runner.job(RARELY)
    def slow() -> None:
        started.set()
        assert released.wait(PATIENCE_S)
        ended.set()

    with runner:
        runner.wait(runner.run_now("slow"))
        assert started.wait(PATIENCE_S)
        threading.Timer(0.1, released.set).start()
    assert ended.is_set()


def test_a_function_in_a_thread_may_use_the_runner_but_not_stop_it(runner: kron.Runner) -> None:
    seen: list[str] = []

    @runner.job(RARELY)
    def curious() -> None:
        seen.extend(statuses(runner, "curious"))
        with pytest.raises(ConflictError, match="cannot wait for stop"):
            runner.stop()

    with runner:
        runner.wait(runner.run_now("curious"))
        wait_for(lambda: statuses(runner, "curious") == ["SUCCESS"])
    assert seen == ["STARTED"]


def test_a_function_that_exits_fails_and_the_runner_continues(runner: kron.Runner) -> None:
    @runner.job(RARELY)
    async def exits() -> None:
        sys.exit(3)

    with runner:
        for count in (1, 2):
            runner.wait(runner.run_now("exits"))
            wait_for(lambda count=count: statuses(runner, "exits") == ["FAILED"] * count)  # type: ignore[misc]
        assert (
            runner.wait(runner.runs("exits"))[0].error == "RuntimeError: the function exited: SystemExit(3)"
        )


def test_a_standby_takes_over_when_the_other_runner_stops(url: str) -> None:
    ran = threading.Event()
    first, second = kron.Runner(url), kron.Runner(url, wait=True)
    second.job(RARELY, identity="job")(ran.set)
    first.job(RARELY, identity="other")(print)
    first.start()
    second.start()
    assert [job.identity for job in second.wait(second.jobs())] == ["other"]
    first.stop()
    wait_for(lambda: _runs_now(second, "job"))
    assert ran.wait(PATIENCE_S)
    second.stop()


def _runs_now(runner: kron.Runner, identity: str) -> bool:
    try:
        return bool(runner.wait(runner.run_now(identity)))
    except (kron.InvalidOptionError, StoreError):
        return False


def test_a_standby_may_be_stopped(url: str) -> None:
    with kron.Runner(url):
        waiting = kron.Runner(url, wait=True)
        waiting.start()
        waiting.stop()


async def test_the_thread_with_the_event_loop_must_await(runner: kron.Runner) -> None:
    with pytest.raises(ConflictError, match="use `async with runner:`"), runner:
        pass
    async with runner:
        with pytest.raises(ConflictError, match="use await"):
            runner.wait(runner.runs("job"))


async def test_a_loop_in_another_thread_is_told_how_to_call(runner: kron.Runner) -> None:
    await asyncio.to_thread(runner.start)
    with pytest.raises(ConflictError, match=r"runs in another thread; use runner.wait"):
        await runner.runs("job")
    await runner.stop()


PROGRAM = """
import sys, time, logging, threading
import kron

logging.basicConfig(level="WARNING")
runner = kron.Runner(sys.argv[1])
started = threading.Event()

@runner.job("0 0 29 2 *")
def slow():
    started.set()
    time.sleep(0.3)
    print("the function has ended", flush=True)

runner.start()
runner.wait(runner.run_now("slow"))
assert started.wait(60)
print("the program ends", flush=True)
"""


@pytest.mark.parametrize(
    ("end", "codes"),
    [
        pytest.param("", (0,), id="the last line"),
        pytest.param("raise KeyboardInterrupt", (130, -2), id="ctrl-c", marks=pytest.mark.slow),
        pytest.param("sys.exit(4)", (4,), id="an exit", marks=pytest.mark.slow),
    ],
)
def test_a_program_that_ends_without_a_stop_waits_for_its_functions(
    end: str, codes: tuple[int, ...], url: str
) -> None:
    command = [sys.executable, "-c", PROGRAM + end, url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.stdout.splitlines() == ["the program ends", "the function has ended"], done.stderr
    assert done.returncode in codes
    assert "could not be stopped" not in done.stderr
    with kron.Runner(url) as runner:
        assert statuses(runner, "slow") == ["SUCCESS"]


FORKS = """
import os, signal, sys, time
import kron

runner = kron.Runner(sys.argv[1])
runner.start()
child = os.fork()
if child == 0:
    for call in (lambda: runner.wait(runner.jobs()), runner.start):
        try:
            call()
        except kron.ConflictError as error:
            os.write(1, f"{error}\\n".encode())
    time.sleep(600)
os.write(1, f"{child}\\n".encode())
sys.stdin.readline()
if sys.argv[2] == "stop":
    runner.stop()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_forked_child_neither_hangs_nor_keeps_the_jobs(end: str, url: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKS, url, end]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        told = [parent.stdout.readline().strip() for _ in range(3)]
        child = next(line for line in told if line.isdigit())
        try:
            forked = "The runner runs in the process that this one was forked from; start it after the fork"
            assert sorted(told) == sorted([child, forked, forked])
            parent.stdin.write("end\n")
            parent.stdin.flush()
            parent.wait(PATIENCE_S)
            # The child lives on, as the workers of multiprocessing do after a crash.
            os.kill(int(child), 0)
            with kron.Runner(url) as runner:
                assert runner.wait(runner.jobs()) == []
        finally:
            os.kill(int(child), signal.SIGKILL)
