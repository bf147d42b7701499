"""Put faults into Kron on purpose, one at a time, and see whether the simulator finds each: `make mutants`.

A fault is a few words replaced in a copy of the source. The table it writes goes into the documentation.
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
# A fault that makes something wait for ever is found by that; each hunt has so many seconds in all.
MAX_HUNT_S = 240
WORKERS = 2
HUNT = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from kron.testing.simulator import simulate
for seed in range({seeds}):
    try:
        faults = simulate(seed).faults
    except Exception as error:
        faults = (f"{{type(error).__name__}}: it raises",)
    if faults:
        print(json.dumps([seed, faults[0]]))
        break
"""


class Mutant(NamedTuple):
    """One fault: what it means, the file, and which words are replaced by which."""

    name: str
    path: str
    old: str
    new: str


class Caught(NamedTuple):
    """By which seed a fault was found, and by what; or by none."""

    mutant: Mutant
    seed: int | None
    by: str


PLAN, TURN, OVERLAP = "core/plan.py", "core/turn.py", "core/overlap.py"
BACKLOG, OVERRIDE, LIFE = "core/backlog.py", "core/override.py", "core/lifecycle.py"
ENGINE, CARRIER, TAKEOVER = "runtime/engine.py", "runtime/carrier.py", "runtime/takeover.py"
SCHEDULER, SESSION, USUAL = "fronts/embed/scheduler.py", "fronts/embed/session.py", "core/usual.py"
TASK = "core/task.py"

MUTANTS = (
    Mutant("every start is made twice", CARRIER, "            launcher.start(launch, self.hear)\n",
           "            launcher.start(launch, self.hear)\n            launcher.start(launch, self.hear)\n"),
    Mutant("a start is recorded and never made", CARRIER, "            launcher.start(launch, self.hear)\n",
           "            if run.attempt == 1: launcher.start(launch, self.hear)\n"),
    Mutant("the minute before the first registration counts", OVERRIDE,
           "since = 1000 * minute_of(timezone, now // 1000)", "since = 1000 * minute_of(timezone, now // 1000) - 60_000"),
    Mutant("a start comes a second late", USUAL, "plan_at = None if following is None else 1000 * following",
           "plan_at = None if following is None else 1000 * following + 1000"),
    Mutant("a failure is not tried again", PLAN, "elif policy.retry_delay is not None and run.kind in RETRIED:",
           "elif False:"),
    Mutant("a retry comes at once", PLAN, "due_at = run.ended_at - (-policy.retry_delay // MILLISECOND)",
           "due_at = run.ended_at"),
    Mutant("a retry comes a second late", PLAN, "due_at = run.ended_at - (-policy.retry_delay // MILLISECOND)",
           "due_at = run.ended_at + 1000 - (-policy.retry_delay // MILLISECOND)"),
    Mutant("a success is to be tried again", PLAN, "last_success_at=run.ended_at)\n        return run\n",
           "last_success_at=run.ended_at)\n        return _to_try_again(turn, run)\n"),
    Mutant("a retry is not given up for the next period", OVERLAP, "    if line:\n        _preempt_retries(turn)",
           "    if False:\n        _preempt_retries(turn)"),
    Mutant("an orphan is forgotten", PLAN, "if policy.on_orphan is OnOrphan.RESTART:", "if False:"),
    Mutant("orphans are not looked for", TAKEOVER, "    if not left:\n        return []", "    if True:\n        return []"),
    Mutant("an orphan waits a minute", PLAN, "due_at=run.ended_at, is_open=1)",
           "due_at=run.ended_at + 60_000, is_open=1)"),
    Mutant("every missed period is made up", TASK, "catchup=Catchup.ONCE", "catchup=Catchup.ALL"),
    Mutant("no missed period is made up", TASK, "catchup=Catchup.ONCE", "catchup=Catchup.NONE"),
    Mutant("a period starts beside a run", TASK, "overlap=Overlap.BUFFER_ONE", "overlap=Overlap.ALLOW"),
    Mutant("a period during a run is dropped", TASK, "overlap=Overlap.BUFFER_ONE", "overlap=Overlap.SKIP"),
    Mutant("every period during a run waits its turn", TASK, "overlap=Overlap.BUFFER_ONE", "overlap=Overlap.QUEUE"),
    Mutant("the oldest period waits instead of the newest", OVERLAP,
           "    for run in line[:-1]:\n        turn.drop(run, Status.SKIPPED, Reason.COALESCED)\n    for run in line[-1:]:",
           "    for run in line[1:]:\n        turn.drop(run, Status.SKIPPED, Reason.COALESCED)\n    for run in line[:1]:"),
    Mutant("what waited for an end waits for the next period", PLAN, "        _leave_waiting(turn)\n", "        pass\n"),
    Mutant("stop does not wait for callbacks", ENGINE,
           "        for launcher in self._launchers.values():\n            await launcher.close()\n"
           "        self.call()\n        if self._task is not None:\n            await self._task\n",
           "        if self._task is not None:\n            self._task.cancel()\n"),
    Mutant("stop returns before it is done", SCHEDULER,
           "        if self._closing is not None and self._machine.state is SchedulerState.STOPPING:\n"
           "            await asyncio.shield(self._closing)",
           "        if self._closing is not None:\n            self._calls.stops_ended(self._now())"),
    Mutant("a lost answer means a lost start", CARRIER, "        for job, run in starts:\n            self._start(job, run)\n", ""),
    Mutant("a lost answer means another start", TAKEOVER,
           "    return found is not None and (found.attempt, found.token, found.acked) == (run.attempt, run.token, 0)",
           "    return True"),
    Mutant("a report is lost when the store fails", ENGINE, "            self._inbox.put_back(reports)\n            raise",
           "            raise"),
    Mutant("a store that fails ends the engine", ENGINE, "                    self._degrade(error)\n                    #",
           "                    raise RuntimeError from error\n                    #"),
    Mutant("an edit owes nothing", OVERRIDE, "newest is None or 1000 * newest <= since", "True"),
    Mutant("an edit owes a run in any case", OVERRIDE, "newest is None or 1000 * newest <= since", "newest is None"),
    Mutant("an edit keeps the old retry delay", OVERRIDE,
           "return run._replace(due_at=run.ended_at - (-terms.policy.retry_delay // MILLISECOND))", "return run"),
    Mutant("an edit leaves what waited by the old expression", OVERRIDE,
           "return settle(run, Status.CANCELLED, Reason.EDITED)", "return run"),
    Mutant("an edit is not noticed", OVERRIDE, "    if not same:\n", "    if False:\n"),
    Mutant("every restart is an edit", OVERRIDE, "    if not same:\n", "    if True:\n"),
    Mutant("a removed task is remembered", OVERRIDE, "    found.forgotten.extend(cases)\n", ""),
    Mutant("the first minute comes too late", OVERRIDE, "        change = _withdraw_first_minute(record)\n",
           "        change = None\n"),
    Mutant("the current minute is past at the first start", OVERRIDE,
           ".job, now=now, since=since)", ".job, now=now)"),
    Mutant("periods are read in UTC", SESSION, "timezone=self.timezone, now=now)", 'timezone="UTC", now=now)'),
    Mutant("a second list is accepted", SCHEDULER, "        if self._machine.state in ACTIVE:\n            self._calls",
           "        if self._machine.state is SchedulerState.INITIALIZING:\n            self._calls"),
    Mutant("the end of a run is written as its failure", LIFE,
           "Happened.SUCCESS: (Status.SUCCESS, Result.SUCCESS)", "Happened.SUCCESS: (Status.FAILED, Result.SUCCESS)"),
    Mutant("a period's record is left out when it is dropped", OVERLAP,
           "        turn.drop(run, Status.SKIPPED, Reason.COALESCED)\n    for run in line[-1:]:",
           "        turn.runs.pop(run.key)\n    for run in line[-1:]:"),
    Mutant("an attempt is not counted", LIFE, "attempt=run.attempt + 1,", "attempt=max(1, run.attempt),"),
    Mutant("the cursor stays behind", BACKLOG, "        turn.job = turn.job._replace(cursor=nominal_time)\n", ""),
    Mutant("a counted record says one too few", BACKLOG, "RangeRecord(identity, first, newest, count,",
           "RangeRecord(identity, first, newest - 1, count,"),
)  # fmt: skip

# Faults that no story shows at present: one needs a rarer outage, the other makes a story go on for ever.
SURVIVORS = frozenset({"a report is lost when the store fails", "a removed task is remembered"})


def hunt(mutant: Mutant) -> Caught:
    """Put a fault in, and look for a seed that finds it."""
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        file = copy / "kron" / mutant.path
        text = file.read_text()
        if text.count(mutant.old) != 1:
            raise SystemExit(f"{mutant.name}: found {text.count(mutant.old)} times in {mutant.path}")
        file.write_text(text.replace(mutant.old, mutant.new))
        return _search(mutant, copy)


def _search(mutant: Mutant, source: Path) -> Caught:
    environment = os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-W", "ignore", "-c", HUNT.format(seeds=MAX_SEEDS)]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=MAX_HUNT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Caught(mutant, None, "it never ends")
    if not done.stdout:
        return Caught(mutant, None, done.stderr.strip().splitlines()[-1] if done.stderr else "")
    seed, fault = json.loads(done.stdout)
    return Caught(mutant, seed, fault.partition(":")[0])


def table(found: list[Caught]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| fault | where | found by | seed |"
    yield "|---|---|---|---|"
    for caught in found:
        found_by = (caught.by, caught.seed) if caught.seed is not None else ("**not found**", "-")
        yield f"| {caught.mutant.name} | `{caught.mutant.path}` | {found_by[0]} | {found_by[1]} |"


def main() -> None:
    """Hunt every fault, say what found it, and write the table."""
    wanted = [mutant for mutant in MUTANTS if not sys.argv[1:] or any(w in mutant.name for w in sys.argv[1:])]
    found: list[Caught] = []
    with ThreadPoolExecutor(WORKERS) as pool:
        for caught in pool.map(hunt, wanted):
            found.append(caught)
            how = f"seed {caught.seed}, {caught.by}" if caught.seed is not None else f"NOT FOUND {caught.by}"
            print(f"[mutants] {len(found):2} of {len(wanted)}: {caught.mutant.name}: {how}", flush=True)
    missed = [caught for caught in found if caught.seed is None]
    if len(wanted) == len(MUTANTS):
        head, _, rest = PAGE.read_text().partition(BEGIN)
        tail = rest.partition(END)[2]
        PAGE.write_text("\n".join([head + BEGIN, "", *table(found), "", END + tail]))
    print(f"[mutants] {len(found) - len(missed)} of {len(found)} faults found")
    sys.exit(0 if {caught.mutant.name for caught in missed} <= SURVIVORS else 1)


if __name__ == "__main__":
    main()
