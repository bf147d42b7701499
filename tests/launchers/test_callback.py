"""Calls of functions: every end is reported, once, whatever the function does."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from kron.clocks.system import SystemClock
from kron.core.errors import InputError
from kron.core.plan.report import Launch, LeaseStatus, RunEvent
from kron.launchers.callback import CallbackLauncher
from kron.launchers.launch import MAX_ERROR, tidy
from tests.launchers.ear import Ear, a_launch


@pytest.fixture
async def launcher() -> AsyncIterator[CallbackLauncher]:
    launcher = CallbackLauncher(SystemClock())
    yield launcher
    await launcher.close(wait=False)


async def fine(_launch: Launch) -> str:
    return "whatever it returns"


async def hang(_launch: Launch) -> None:
    await asyncio.sleep(60)


async def refuse(_launch: Launch) -> None:
    raise ValueError("no\x00 room here")


async def miss(_launch: Launch) -> None:
    raise KeyError("backup")


async def talk(_launch: Launch) -> None:
    raise RuntimeError("x" * 10_000)


async def wait_for_what_is_cancelled(_launch: Launch) -> None:
    other = asyncio.ensure_future(asyncio.sleep(60))
    asyncio.get_running_loop().call_soon(other.cancel)
    await other


async def end_at_leisure(launch: Launch) -> None:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        await asyncio.sleep(0.02)
        raise


async def end_well_when_asked(_launch: Launch) -> None:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        return


@pytest.mark.parametrize(
    ("callback", "happened", "error"),
    [
        pytest.param(fine, RunEvent.SUCCESS, None, id="success"),
        pytest.param(refuse, RunEvent.FAILED, "ValueError: no\ufffd room here", id="failure"),
        pytest.param(miss, RunEvent.FAILED, "KeyError: 'backup'", id="a KeyError is its own"),
        pytest.param(
            wait_for_what_is_cancelled,
            RunEvent.FAILED,
            "CancelledError: something the function waited for was cancelled",
            id="cancelled, but not by us",
        ),
    ],
)
async def test_how_it_ends_is_reported_once(
    launcher: CallbackLauncher, callback: object, happened: RunEvent, error: str | None
) -> None:
    ear, launch = Ear(), a_launch()
    launcher.callbacks["backup"] = callback  # type: ignore[assignment]
    launcher.start(launch, ear)
    assert launcher.busy
    end = await ear.end_of(launch)
    assert (end.happened, end.error) == (happened, error)
    await asyncio.sleep(0)
    assert ear.said(launch) == [happened]
    assert not launcher.busy


async def test_a_job_without_a_function_is_a_failed_launch(launcher: CallbackLauncher) -> None:
    ear, launch = Ear(), a_launch()
    launcher.start(launch, ear)
    end = await ear.end_of(launch)
    assert (end.happened, end.error) == (RunEvent.LAUNCH_FAILED, "no function is registered for the job")


async def test_a_call_is_inside_and_so_is_a_task_that_it_waits_for(launcher: CallbackLauncher) -> None:
    seen: list[bool] = []

    async def look(_: Launch) -> None:
        seen.append(launcher.is_inside())
        seen.append(await asyncio.create_task(_is_inside(launcher)))
        left_behind = asyncio.create_task(_is_inside(launcher))
        await asyncio.sleep(0)
        seen.append(left_behind.result())

    ear, launch = Ear(), a_launch()
    launcher.callbacks["backup"] = look
    launcher.start(launch, ear)
    assert not launcher.is_inside()
    await ear.end_of(launch)
    assert seen == [True, True, False]


async def _is_inside(launcher: CallbackLauncher) -> bool:
    return launcher.is_inside()


async def test_where_a_cancelled_call_counts_as_failed_it_says_so_unless_all_are_cancelled() -> None:
    async def cancel_itself(_: Launch) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    launcher = CallbackLauncher(SystemClock(), cancelled=RunEvent.FAILED)
    ear, launch = Ear(), a_launch()
    launcher.callbacks["backup"] = cancel_itself
    launcher.start(launch, ear)
    end = await ear.end_of(launch)
    assert (end.happened, end.error) == (RunEvent.FAILED, "CancelledError: the call was cancelled")
    ear = Ear()
    launcher.callbacks["backup"] = hang
    launcher.start(launch, ear)
    await asyncio.sleep(0)
    launcher.cancel()
    assert (await ear.end_of(launch)).happened is RunEvent.CANCELLED


async def test_a_failure_is_logged_with_where_it_came_from(
    launcher: CallbackLauncher, caplog: pytest.LogCaptureFixture
) -> None:
    ear, launch = Ear(), a_launch()
    launcher.callbacks["backup"] = refuse
    launcher.start(launch, ear)
    await ear.end_of(launch)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("kron.launchers", logging.ERROR)
    assert record.getMessage() == f"job 'backup' failed (attempt 1 of {launch.run.key})"
    assert "in refuse" in caplog.text


def test_errors_are_texts_that_every_store_can_keep() -> None:
    assert tidy("a\x00b\udc80c\td\ne\x1b[1m\x7f") == "a\ufffdb?c\td\ne\ufffd[1m\ufffd"
    kept = "".join(sign for sign in map(chr, range(256)) if tidy(sign) == sign)
    assert kept == "\t\n\r" + "".join(map(chr, (*range(32, 127), *range(128, 256))))


async def test_long_errors_are_cut(launcher: CallbackLauncher) -> None:
    ear, launch = Ear(), a_launch()
    launcher.callbacks["backup"] = talk
    launcher.start(launch, ear)
    end = await ear.end_of(launch)
    assert end.error is not None
    assert len(end.error) == MAX_ERROR
    assert end.error.startswith("RuntimeError: xxx")


@pytest.mark.parametrize("begun", [False, True], ids=["before its first step", "while it runs"])
@pytest.mark.parametrize(
    ("callback", "happened"),
    [
        pytest.param(hang, RunEvent.CANCELLED, id="at once"),
        pytest.param(end_at_leisure, RunEvent.CANCELLED, id="at leisure"),
        pytest.param(end_well_when_asked, RunEvent.SUCCESS, id="well"),
    ],
)
async def test_a_call_can_be_ended(
    launcher: CallbackLauncher, callback: object, happened: RunEvent, begun: bool
) -> None:
    ear, launch = Ear(), a_launch()
    launcher.callbacks["backup"] = callback  # type: ignore[assignment]
    launcher.start(launch, ear)
    if begun:
        await asyncio.sleep(0.01)
    launcher.end(launch.run)
    end = await ear.end_of(launch)
    assert end.happened is (happened if begun else RunEvent.CANCELLED)
    await launcher.close()
    assert len(ear.reports) == 1


async def test_attempts_are_told_apart(launcher: CallbackLauncher) -> None:
    ear, first, second = Ear(), a_launch(attempt=1), a_launch(attempt=2)
    launcher.callbacks["backup"] = hang
    launcher.start(first, ear)
    launcher.start(second, ear)
    await asyncio.sleep(0)
    launcher.end(first.run)
    await ear.end_of(first)
    assert ear.said(second) == []
    assert launcher.busy
    launcher.end(second.run)
    await ear.end_of(second)


async def test_calls_are_not_limited_unless_asked_for(launcher: CallbackLauncher) -> None:
    assert await _most_at_once(launcher) == 500


async def test_with_a_limit_the_others_wait_in_order() -> None:
    launcher = CallbackLauncher(SystemClock(), max_calls=3)
    assert await _most_at_once(launcher) == 3


async def _most_at_once(launcher: CallbackLauncher) -> int:
    ear, begun, running, most = Ear(), [], 0, 0

    async def work(launch: Launch) -> None:
        nonlocal running, most
        begun.append(launch.run.identity)
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1

    names = [f"job {n}" for n in range(500)]
    for name in names:
        launcher.callbacks[name] = work
        launcher.start(a_launch(identity=name), ear)
    await launcher.close()
    assert begun == names
    assert [report.happened for report in ear.reports] == [RunEvent.SUCCESS] * 500
    return most


async def test_a_call_that_waits_for_its_turn_can_be_ended() -> None:
    launcher, ear = CallbackLauncher(SystemClock(), max_calls=1), Ear()
    first, second, third = (a_launch(identity=name) for name in "abc")
    launcher.callbacks.update(a=hang, b=fine, c=fine)
    for launch in (first, second, third):
        launcher.start(launch, ear)
    await asyncio.sleep(0.01)
    launcher.end(second.run)
    await ear.end_of(second)
    assert ear.said(second) == [RunEvent.CANCELLED]
    launcher.end(first.run)
    assert (await ear.end_of(third)).happened is RunEvent.SUCCESS


async def test_nothing_is_called_while_a_lease_may_have_ended() -> None:
    launcher, ear, holds = CallbackLauncher(SystemClock()), Ear(), [LeaseStatus.LAPSED]
    launch = a_launch(identity="a")._replace(lease_status=lambda: holds[0])
    launcher.callbacks["a"] = fine
    launcher.start(launch, ear)
    await asyncio.sleep(0.05)
    assert (ear.reports, launcher.busy) == ([], True)
    holds[0] = LeaseStatus.HELD
    assert (await ear.end_of(launch)).happened is RunEvent.SUCCESS


async def test_a_call_that_waits_for_its_turn_is_dropped_when_somebody_else_looks_after_it() -> None:
    launcher, ear, holds = CallbackLauncher(SystemClock(), max_calls=1), Ear(), [LeaseStatus.HELD]
    called: list[int] = []

    async def note(launch: Launch) -> None:
        called.append(launch.run.token)

    first, second = a_launch(identity="a"), a_launch(identity="b")
    launcher.callbacks.update(a=hang, b=note)
    launcher.start(first, ear)
    launcher.start(second._replace(lease_status=lambda: holds[0]), ear)
    await asyncio.sleep(0)
    holds[0] = LeaseStatus.LOST
    # This owner has it again: the same attempt, with a newer token.
    launcher.start(second._replace(run=second.run._replace(token=8)), ear)
    launcher.end(first.run)
    assert (await ear.end_of(second)).happened is RunEvent.SUCCESS
    await launcher.close()
    assert (called, ear.said(second)) == ([8], [RunEvent.SUCCESS])


def test_the_limit_must_leave_room() -> None:
    with pytest.raises(InputError):
        CallbackLauncher(SystemClock(), max_calls=0)


@pytest.mark.parametrize("begun", [False, True], ids=["before its first step", "while it runs"])
async def test_closing_without_waiting_ends_every_call(launcher: CallbackLauncher, begun: bool) -> None:
    ear = Ear()
    launcher.callbacks.update(a=hang, b=end_at_leisure)
    for name in "ab":
        launcher.start(a_launch(identity=name), ear)
    if begun:
        await asyncio.sleep(0)
    await launcher.close(wait=False)
    assert [report.happened for report in ear.reports] == [RunEvent.CANCELLED] * 2
    assert not launcher.busy


async def test_nothing_is_adopted(launcher: CallbackLauncher) -> None:
    ear = Ear()
    assert await launcher.adopt([a_launch()], ear) == frozenset()
    assert ear.reports == []


def test_a_call_that_ends_the_program_has_ended() -> None:
    ear, launch = Ear(), a_launch()

    async def leave(_launch: Launch) -> None:
        raise SystemExit(3)

    async def main() -> None:
        launcher = CallbackLauncher(SystemClock())
        launcher.callbacks["backup"] = leave
        launcher.start(launch, ear)
        await asyncio.sleep(1)

    with pytest.raises(SystemExit):
        asyncio.run(main())
    assert [(report.happened, report.error) for report in ear.reports] == [
        (RunEvent.FAILED, "the call was aborted")
    ]
