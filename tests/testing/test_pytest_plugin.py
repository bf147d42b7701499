"""The pytest plugin, used as a program's own tests use it."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

import kron
from kron.errors import ConflictError
from kron.testing import VirtualTime
from tests.docs.page import ROOT, blocks_of
from tests.waiting import wait_for

pytest_plugins = ["pytester"]

PROGRAM = """
import kron

runner = kron.Runner("sqlite:///production.db")
sent, nights = [], []


@runner.job("0 * * * *", deadline="1m", retry_delay="5m")
def report(run):
    sent.append(run.nominal_time)
    if len(sent) == 2:
        raise ConnectionError("no answer")


@runner.job("30 2 * * *", timezone="Europe/Berlin", dst_gap="next", deadline="1m")
async def nightly():
    nights.append(1)
"""


@pytest.fixture
def program(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(program=PROGRAM)
    return pytester


def run(program: pytest.Pytester, tests: str, *, passed: int, failed: int = 0, asyncio: bool = False) -> str:
    program.makepyfile(test_program=tests)
    plugins = ["-p", "kron.testing.pytest_plugin", *(["-p", "pytest_asyncio.plugin"] if asyncio else [])]
    # Its own settings: the folder may lie inside this project.
    program.makeini("[pytest]\n" + ("asyncio_default_fixture_loop_scope = function\n" if asyncio else ""))
    result = program.runpytest_subprocess("-W", "error", *plugins)
    result.assert_outcomes(passed=passed, failed=failed)
    assert not (program.path / "production.db").exists()
    return result.stdout.str()


def test_hours_pass_and_the_job_ran_as_often(program: pytest.Pytester) -> None:
    tests = """
        from datetime import UTC, datetime
        from program import nights, runner

        def test_three_hours(kron_time):
            kron_time.start(runner)
            kron_time.advance(hours=3)
            statuses = [(run.status, run.attempt) for run in kron_time.runs("report")]
            assert statuses == [("SUCCESS", 1), ("SUCCESS", 2), ("SUCCESS", 1)]
            assert kron_time.now.hour == 3

        def test_the_night_the_clocks_change(kron_time):
            nights.clear()
            kron_time.start(runner, at=datetime(2026, 3, 28, 23, 30, tzinfo=UTC))
            kron_time.advance_to(datetime(2026, 3, 29, 1, tzinfo=UTC))
            assert nights == [1]
            answer = runner.wait(runner.why("nightly", datetime(2026, 3, 29, 1, tzinfo=UTC)))
            assert answer.outcome == "executed"

        def test_that_fails(kron_time):
            kron_time.start(runner)
            kron_time.advance(minutes=59)
            assert kron_time.runs("report")
    """
    said = run(program, tests, passed=2, failed=1)
    assert "assert []" in said


@pytest.mark.slow
def test_an_async_test_awaits_the_same_calls(program: pytest.Pytester) -> None:
    tests = """
        import pytest
        from program import runner

        @pytest.mark.asyncio
        async def test_a_day(kron_time):
            await kron_time.start(runner)
            await kron_time.advance(days=1)
            assert len(await runner.runs("report")) == 24
            await kron_time.stop()

        @pytest.mark.asyncio
        async def test_without_a_stop(kron_time):
            await kron_time.start(runner)
            await kron_time.advance(hours=1)
            assert len(await runner.runs("report")) == 1

        def test_after_it(kron_time):
            kron_time.start(runner)
            kron_time.advance(hours=2)
            assert len(kron_time.runs("report")) == 2
    """
    run(program, tests, passed=3, asyncio=True)


@pytest.mark.slow
def test_loading_the_plugin_loads_no_engine(program: pytest.Pytester) -> None:
    tests = """
        import sys

        def test_it():
            assert "kron.runtime.engine" not in sys.modules
    """
    run(program, tests, passed=1)


@pytest.mark.slow
def test_the_tests_of_the_how_to_pass(program: pytest.Pytester) -> None:
    page = (ROOT / "docs" / "how-to" / "test-your-schedules.md").read_text(encoding="utf-8")
    files = {block.file: block.text for block in blocks_of(page) if block.file is not None}
    program.makepyfile(shop=files["shop.py"])
    run(program, files["test_shop.py"], passed=3, asyncio=True)


# --- the object behind the fixture -----------------------------------------------------------------


def a_runner() -> tuple[kron.Runner, list[datetime]]:
    runner = kron.Runner("memory://")
    seen: list[datetime] = []

    @runner.job("0 * * * *", deadline="1m")
    def hourly(run: kron.Run) -> None:
        seen.append(run.nominal_time)
        assert runner.wait(runner.runs("hourly"))[0].status == "STARTED"

    return runner, seen


def test_a_runner_has_its_own_state_and_clock_back_after_the_stop() -> None:
    runner, seen = a_runner()
    virtual = VirtualTime()
    virtual.start(runner)
    virtual.advance(hours=2)
    virtual.stop()
    assert seen == [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in (1, 2)]
    with runner:
        assert runner.wait(runner.runs("hourly")) == []
    virtual.start(runner, at=datetime(2026, 6, 1, 12, tzinfo=UTC))
    virtual.advance(seconds=1)
    assert len(virtual.runs("hourly")) == 1
    virtual.close()


class Receiver(BaseHTTPRequestHandler):
    """Counts requests."""

    paths: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.paths.append(self.path)
        self.send_response(204)
        self.end_headers()

    do_POST = do_GET  # noqa: N815 - http.server's name


def fails() -> None:
    raise ValueError("broken")


def test_no_notification_leaves_a_test_in_virtual_time() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        runner = kron.Runner("memory://", notify={"to": f"{url}/default"})
        runner.job("@hourly", identity="a", notify={"heartbeat": f"{url}/beat", "to": f"{url}/own"})(print)
        runner.job("@hourly", identity="b")(fails)
        virtual = VirtualTime()
        virtual.start(runner)
        virtual.advance(hours=3)
        assert [run.status for run in virtual.runs("b")] == ["FAILED"] * 3
        virtual.close()
        assert Receiver.paths == []
        # The same runner does notify when it is not simulated.
        with runner:
            runner.wait(runner.run_now("a"))
            wait_for(lambda: "/beat" in Receiver.paths)
        server.shutdown()


def test_one_runner_at_a_time_that_does_not_run_already() -> None:
    runner, _ = a_runner()
    virtual = VirtualTime()
    with pytest.raises(ConflictError, match="start one first"):
        virtual.runs("hourly")
    virtual.start(runner)
    with pytest.raises(ConflictError, match="stop it first"):
        virtual.start(runner)
    virtual.close()
    with runner, pytest.raises(ConflictError, match="already running"):
        VirtualTime().start(runner)


async def test_a_test_that_ends_early_leaves_a_runner_that_can_start() -> None:
    runner, seen = a_runner()
    for _ in range(2):
        virtual = VirtualTime()
        await virtual.start(runner)
        await virtual.advance(hours=1)
        virtual.close()
        await asyncio.sleep(0)
    assert len(seen) == 2
    assert timedelta(0) == runner.clock_behind
