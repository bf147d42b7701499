"""Inject bugs into copies of Kron, one at a time, and check that the simulator detects each: `make mutants`.

A bug is a few words replaced in a copy of the source. The table it writes goes into the documentation.
A bug that no story can show is detected by a named test.
"""
# ruff: noqa: E501 - the words of the source stand as they are there

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "explanation" / "mutants.md"
BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"
MAX_SEEDS = 600
# A story that takes longer than this never ends, and that is a detection; the simulator itself stops most of
# them. A hunt that takes longer has detected nothing.
MAX_STORY_S, MAX_HUNT_S = 400, 900
ENDLESS = "the scenario does not end"
WORKERS = 2
HUNT = """
import json, logging, os, signal
logging.disable(logging.CRITICAL)
from kron.testing.simulator import simulate

def give_up(*_):
    print(json.dumps([seed, {endless!r}]), flush=True)
    os._exit(0)

signal.signal(signal.SIGALRM, give_up)
for seed in range({seeds}):
    signal.alarm({seconds})
    try:
        faults = simulate(seed).faults
    except Exception as error:
        faults = (f"{{type(error).__name__}}: it raises",)
    if faults:
        print(json.dumps([seed, faults[0]]))
        break
"""


class Mutant(NamedTuple):
    """One bug: its meaning, the file, the words and their replacement; for some the test that detects it."""

    name: str
    path: str
    old: str
    new: str
    test: str = ""


class Caught(NamedTuple):
    """What detected a fault, with the seed of the scenario; or why it was not detected."""

    mutant: Mutant
    found: bool
    by: str
    seed: int | None = None

    def __str__(self) -> str:
        seed = "" if self.seed is None else f", seed {self.seed}"
        return f"{self.by}{seed}" if self.found else f"NOT FOUND {self.by}"


PLAN, STEP, OVERLAP = "core/plan/plan.py", "core/plan/step.py", "core/plan/overlap.py"
BACKLOG, RECONCILE, LIFECYCLE = "core/plan/backlog.py", "core/task/reconcile.py", "core/plan/lifecycle.py"
ENGINE, DISPATCHER, RECOVERY = "runtime/engine.py", "runtime/dispatcher.py", "runtime/recovery.py"
SCHEDULER, TASK_LIST, FAST_PATH = (
    "fronts/embed/scheduler.py",
    "fronts/embed/task_list.py",
    "core/plan/fast_path.py",
)
POLICY, REGISTRATION, STATUS = (
    "core/job/policy.py",
    "fronts/embed/registration.py",
    "fronts/embed/task_status.py",
)

MUTANTS = (
    Mutant("every run is started twice", DISPATCHER, "            launcher.start(launch, self.report)\n",
           "            launcher.start(launch, self.report)\n            launcher.start(launch, self.report)\n"),
    Mutant("a recorded run is never started", DISPATCHER, "            launcher.start(launch, self.report)\n",
           "            if run.attempt == 1: launcher.start(launch, self.report)\n"),
    Mutant("the minute before the first registration is due", RECONCILE,
           "since = 1000 * minute_of(timezone, now // 1000)", "since = 1000 * minute_of(timezone, now // 1000) - 60_000"),
    Mutant("a start is one second late", FAST_PATH, "plan_at = None if following is None else 1000 * following",
           "plan_at = None if following is None else 1000 * following + 1000"),
    Mutant("a failed run is not retried", PLAN, "elif policy.retry_delay is not None and run.kind in RETRIED:",
           "elif False:"),
    Mutant("a retry ignores its delay", PLAN, "due_at = retry_at(run.ended_at, policy.retry_delay)",
           "due_at = run.ended_at"),
    Mutant("a retry is one second late", PLAN, "due_at = retry_at(run.ended_at, policy.retry_delay)",
           "due_at = retry_at(run.ended_at + 1000, policy.retry_delay)"),
    Mutant("a successful run is retried", PLAN, "last_success_at=run.ended_at)\n        return run\n",
           "last_success_at=run.ended_at)\n        return _with_retry(step, run)\n"),
    Mutant("the next period does not pre-empt a retry", OVERLAP, "    if line:\n        _preempt_retries(step, line[-1])",
           "    if False:\n        _preempt_retries(step, line[-1])"),
    Mutant("an orphaned run is not restarted", PLAN, "if policy.on_orphan is OnOrphan.RESTART:", "if False:"),
    Mutant("orphaned runs are not recovered", RECOVERY, "    if not left:\n        return []", "    if True:\n        return []"),
    Mutant("an orphaned run restarts a minute late", PLAN, "due_at=run.ended_at, is_open=1)",
           "due_at=run.ended_at + 60_000, is_open=1)"),
    Mutant("every missed period is caught up", POLICY, "catchup=Catchup.ONCE", "catchup=Catchup.ALL"),
    Mutant("no missed period is caught up", POLICY, "catchup=Catchup.ONCE", "catchup=Catchup.NONE"),
    Mutant("a period starts while a run is active", POLICY, "overlap=Overlap.BUFFER_ONE", "overlap=Overlap.ALLOW"),
    Mutant("a period due during a run is dropped", POLICY, "overlap=Overlap.BUFFER_ONE", "overlap=Overlap.SKIP"),
    Mutant("every period due during a run is queued", POLICY, "overlap=Overlap.BUFFER_ONE", "overlap=Overlap.QUEUE"),
    Mutant("the oldest period is buffered instead of the newest", OVERLAP,
           "line[:-1]:\n        step.block(run, line[-1], Reason.COALESCED)\n"
           "        step.drop(run, RunStatus.SKIPPED, Reason.COALESCED)\n"
           "    return [] if step.newer and not step.active() else line[-1:]",
           "line[1:]:\n        step.block(run, line[0], Reason.COALESCED)\n"
           "        step.drop(run, RunStatus.SKIPPED, Reason.COALESCED)\n"
           "    return [] if step.newer and not step.active() else line[:1]"),
    Mutant("a buffered period starts with the next period only", PLAN, "        _leave_waiting(step)\n", "        pass\n"),
    Mutant("stop does not wait for callbacks", ENGINE,
           "        for launcher in self._launchers.values():\n            await launcher.close()\n        await self._end()\n",
           "        if self._task is not None:\n            self._task.cancel()\n            self._task = None\n"
           "        await self._end()\n"),
    Mutant("stop returns before the scheduler has stopped", SCHEDULER,
           "        if self._closing is not None and self._machine.state is SchedulerState.STOPPING:\n"
           "            await self._wait_for(self._closing)",
           "        if self._closing is not None:\n            self._calls.stops_ended(self._now())"),
    Mutant("an unconfirmed commit loses its starts", DISPATCHER, "        for launch in starts:\n            self._start(launch.job, launch.run, earlier=earlier)\n", ""),
    Mutant("an unconfirmed commit starts its runs twice", RECOVERY,
           "    return stored is not None and (stored.attempt, stored.token, stored.acked) == (run.attempt, run.token, 0)",
           "    return True"),
    Mutant("a store error loses the reports", ENGINE, "            self._inbox.put_back(reports)\n            raise",
           "            raise"),
    Mutant("a store error stops the engine", ENGINE, "                    self._degrade(error)\n                    #",
           "                    raise RuntimeError from error\n                    #"),
    Mutant("an edit never leaves a period due", RECONCILE, "newest is None or 1000 * newest <= since", "True"),
    Mutant("an edit always leaves a period due", RECONCILE, "newest is None or 1000 * newest <= since", "newest is None"),
    Mutant("an edit keeps the old retry delay", RECONCILE,
           "return run._replace(due_at=retry_at(run.ended_at, compiled.policy.retry_delay))", "return run"),
    Mutant("an edit keeps a buffered period of the old expression", RECONCILE,
           "return settle(run, RunStatus.CANCELLED, Reason.EDITED)", "return run"),
    Mutant("an edit is not detected", RECONCILE, "    if not same:\n", "    if False:\n"),
    Mutant("every restart counts as an edit", RECONCILE, "    if not same:\n", "    if True:\n"),
    Mutant("a removed task keeps its state", RECONCILE, "    resolution.forgotten.extend(states)\n", ""),
    Mutant("the first minute is not withdrawn", RECONCILE, "        change = _withdraw_first_minute(record)\n",
           "        change = None\n"),
    Mutant("the current minute counts as past at the first start", RECONCILE,
           ".job, now=now, since=since)", ".job, now=now)"),
    Mutant("expressions are evaluated in UTC", TASK_LIST, "timezone=self.timezone, now=now)", 'timezone="UTC", now=now)'),
    Mutant("a second list is accepted", SCHEDULER, "        if self._machine.state in ACTIVE:\n            self._calls",
           "        if self._machine.state is SchedulerState.INITIALIZING:\n            self._calls"),
    Mutant("a successful run is recorded as failed", LIFECYCLE,
           "RunEvent.SUCCESS: (RunStatus.SUCCESS, Result.SUCCESS)", "RunEvent.SUCCESS: (RunStatus.FAILED, Result.SUCCESS)"),
    Mutant("a dropped period has no record", OVERLAP,
           "        step.drop(run, RunStatus.SKIPPED, Reason.COALESCED)\n    return",
           "        step.runs.pop(run.key)\n    return"),
    Mutant("an attempt is not counted", LIFECYCLE, "attempt=run.attempt + 1,", "attempt=max(1, run.attempt),"),
    Mutant("the cursor does not advance", BACKLOG, "        cursor = nominal_time\n", ""),
    Mutant("an aggregated record ends one second early", BACKLOG, "RangeRecord(identity, first, newest, count,",
           "RangeRecord(identity, first, newest - 1, count,"),
    Mutant("a buffered period starts while draining", PLAN, "    if draining:\n        _leave_waiting(step)\n",
           "    if False:\n        pass\n"),
    Mutant("every list is refused", REGISTRATION, "if not isinstance(registrations, list | tuple):", "if True:"),
    Mutant("every initialize raises", SCHEDULER, "            since = await self._reconciler.start(",
           "            raise ValueError\n            since = await self._reconciler.start("),
    Mutant("initialize does nothing and is not traced", SCHEDULER,
           "        call = self._calls.init_started(self._now(), registrations)\n", "        return\n"),
    Mutant("a name twice in a list is accepted", REGISTRATION, "        if name in valid:\n", "        if False:\n"),
    Mutant("a negative delay is accepted", REGISTRATION, "    if delay < timedelta(0):\n", "    if False:\n"),
    Mutant("the list is accepted and the engine not started", SCHEDULER, "            self._wiring.worker.start()\n", ""),
    Mutant("every callback is called twice", STATUS, "        return self.callback()\n",
           "        import asyncio\n\n        return asyncio.gather(self.callback(), self.callback())\n"),
    Mutant("the first retry calls nothing", TASK_LIST, "return None if entry is None else entry.call",
           "return None if entry is None or launch.run.attempt == 2 else entry.call"),
    Mutant("the callbacks of the first list stay", TASK_LIST, "        self._tracker.entries = await aside(enter, count=len(registered))\n",
           "        self._tracker.entries = await aside(enter, count=len(registered)) | self._tracker.entries\n"),
    Mutant("an override is lost", TASK_LIST, "changed=resolution.changed,", "changed=[],"),
    Mutant("the orphans of a take-over are dropped", TASK_LIST, "        await wiring.worker.take_over(wait=wait)\n",
           "        await wiring.worker.take_over(wait=wait)\n        wiring.engine._inbox.reports.clear()\n"),
    Mutant("stop does not wait for initialize", SCHEDULER, "            await asyncio.shield(self._initialized)\n", ""),
    Mutant("a retry starts while another run is active", OVERLAP, "step.policy.overlap is not Overlap.ALLOW and step.active()",
           "False", "tests/core/plan/test_overlap.py::test_a_retry_does_not_overlap_what_was_asked_for"),
    Mutant("a due period starts while draining", FAST_PATH, "if self._snapshot.draining or not compiled.plain",
           "if not compiled.plain",
           "tests/simulator/test_simulator.py::test_an_owner_that_is_stopping_starts_no_plain_period_either"),
)  # fmt: skip


def hunt(mutant: Mutant) -> Caught:
    """Inject a bug, and run the stories or its test."""
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        put_in(mutant, copy)
        return _search(mutant, copy)


def put_in(mutant: Mutant, source: Path) -> None:
    """Replace the words of a bug in the source, where they occur exactly once."""
    file = source / "kron" / mutant.path
    text = file.read_text()
    if text.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.name}: found {text.count(mutant.old)} times in {mutant.path}")
    file.write_text(text.replace(mutant.old, mutant.new))


def _search(mutant: Mutant, source: Path) -> Caught:
    try:
        return _by_test(mutant, source) if mutant.test else _by_story(mutant, source)
    except subprocess.TimeoutExpired:
        return Caught(mutant, False, f"within {MAX_HUNT_S} s")


def _by_story(mutant: Mutant, source: Path) -> Caught:
    stories = HUNT.format(seeds=MAX_SEEDS, seconds=MAX_STORY_S, endless=ENDLESS)
    done = _run(["-c", stories], source)
    if not done.stdout:
        return Caught(mutant, False, done.stderr.strip().splitlines()[-1] if done.stderr else "")
    seed, fault = json.loads(done.stdout)
    return Caught(mutant, True, fault.partition(":")[0], seed)


def _by_test(mutant: Mutant, source: Path) -> Caught:
    done = _run(["-m", "pytest", "-q", "-o", f"cache_dir={source.parent}", mutant.test], source)
    # Exit code 1 means that a test failed; other codes are other problems.
    return Caught(mutant, done.returncode == 1, f"`{mutant.test.rpartition('::')[2]}`")


def _run(what: list[str], source: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-W", "ignore", *what]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=MAX_HUNT_S, check=False
    )


def table(found: list[Caught]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| fault | where | found by | seed |"
    yield "|---|---|---|---|"
    for caught in found:
        by, seed = caught.by if caught.found else "**not found**", "-" if caught.seed is None else caught.seed
        yield f"| {caught.mutant.name} | `{caught.mutant.path}` | {by} | {seed} |"


def main() -> None:
    """Run every mutant, print its result, and write the table."""
    wanted = [mutant for mutant in MUTANTS if not sys.argv[1:] or any(w in mutant.name for w in sys.argv[1:])]
    found: list[Caught] = []
    with ThreadPoolExecutor(WORKERS) as pool:
        for caught in pool.map(hunt, wanted):
            found.append(caught)
            print(f"[mutants] {len(found):2} of {len(wanted)}: {caught.mutant.name}: {caught}", flush=True)
    missed = [caught for caught in found if not caught.found]
    if len(wanted) == len(MUTANTS):
        head, _, rest = PAGE.read_text().partition(BEGIN)
        tail = rest.partition(END)[2]
        PAGE.write_text("\n".join([head + BEGIN, "", *table(found), "", END + tail]))
    print(f"[mutants] {len(found) - len(missed)} of {len(found)} faults found")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
