"""A chaos experiment: random faults in a fleet on one store; then it recovers and is judged."""

import asyncio
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from kron.fronts.service.registrar import NAMESPACE
from kron.ports import Store
from kron.stores.url import open_store
from tests.chaos.audit import Audit
from tests.chaos.client import ServiceClient
from tests.chaos.delivery import read_deliveries
from tests.chaos.fleet import API, Fleet
from tests.chaos.judge import Evidence, History, faults_of, periods_of, repeats_of
from tests.chaos.story import Story, now_ms
from tests.postgres import Server

ROOT = Path(__file__).resolve().parents[2]
CUT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE application_name = 'kron' AND pid <> pg_backend_pid()"
)
# The faults and their weights; the API is hit less often than a worker.
ACTS = {"kill": 5, "freeze": 5, "stop": 3, "cut": 3, "database": 1}
API_ODDS = 0.3
LEAST_PAUSE_S, MOST_PAUSE_S, LOOK_S = 0.2, 1.2, 0.05
# How long a database is down, usually and at most; the workers' pools give up waiting after five seconds.
SHORT_S, LONG_S, LONG = 1.0, 12.0, 0.25
# A run's key in a fault, and log lines that tell why its worker did what it did.
KEY = re.compile(r"\b[0-9a-f]{8}\b")
TELLING = re.compile(r" (?:WARNING|ERROR) kron|take_over|start_withheld|ownership_lost")
# How long the fleet may take to finish all open runs at the end.
PATIENCE_S = 240.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The parameters: how long faults are injected, and the least number of faults and deliveries.

    Without a `database` the store is a file, with one worker beside the API.
    """

    folder: Path
    seed: str
    seconds: float
    least_strikes: int = 3
    least_deliveries: int = 200
    sharing: str = "leader"
    database: Server | None = None

    @property
    def ledger(self) -> Path:
        """Return the file in which the executor notes every delivery."""
        return self.folder / "deliveries"


@dataclass(frozen=True, kw_only=True)
class Report:
    """The result of an experiment."""

    plan: Plan
    story: Story
    faults: list[str]
    figures: dict[str, int]
    # What the processes logged about the runs of the faults.
    logged: list[str]

    def lines(self) -> list[str]:
        """Return figures, and for a failed experiment its history and seed."""
        found = [f"{name:>12}: {count}" for name, count in self.figures.items()]
        found += [f"{name:>12}: {count}" for name, count in sorted(self.story.counts.items())]
        if self.faults:
            found += ["", "history:", *self.story.lines[-400:], "", f"seed {self.plan.seed}, faults:"]
            found += self.faults[:50]
            found += ["", "logged:", *self.logged[-400:]]
        return found


def play(plan: Plan, say: Callable[[str], None] = lambda line: None) -> Report:
    """Run the experiment, and judge it."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    story = Story(say)
    url, audit = prepared(plan)
    workers = 3 if plan.database else 1
    fleet = Fleet(plan.folder, url, workers=workers, sharing=plan.sharing, story=story)
    with _executing(plan.ledger, plan.seed, fleet.url) as executor:
        client = ServiceClient(fleet.url, executor, Random(f"{plan.seed} client"), story)
        try:
            fleet.start_all()
            client.fill()
            faults = _strike(plan, fleet, client, story)
            faults += _settle(fleet, client, url, story)
            faults += fleet.stop_all()
        finally:
            fleet.close()
            client.close()
    evidence = evidence_of(plan, url, audit, story, client.asked)
    faults += faults_of(evidence)
    logged = list(_logged_about(faults, fleet.logs))
    return Report(plan=plan, story=story, faults=faults, figures=_figures(evidence), logged=logged)


def _logged_about(faults: Sequence[str], logs: Sequence[tuple[str, Sequence[str]]]) -> Iterator[str]:
    """Yield the log lines that name a run of a fault, and those about leases and the store."""
    keys = {key for fault in faults for key in KEY.findall(fault)}
    for name, log in logs if keys else ():
        for line in log:
            if any(key in line for key in keys) or TELLING.search(line):
                yield f"{name}: {line.rstrip()}"


def evidence_of(plan: Plan, url: str, audit: Audit, story: Story, asked: dict[str, bool]) -> Evidence:
    """Return what an experiment is judged by, once its fleet has stopped."""
    return Evidence(
        histories=asyncio.run(_histories(url)),
        deliveries=read_deliveries(plan.ledger),
        leases=audit.leases(),
        starts=audit.starts(),
        asked=asked,
        is_file=plan.database is None,
        broken_off=story.broken_off,
        struck=story.struck,
        outages=story.outages,
    )


def prepared(plan: Plan) -> tuple[str, Audit]:
    """Create an empty store with its audit."""
    url = f"sqlite:///{plan.folder}/kron.db" if plan.database is None else plan.database.fresh()
    asyncio.run(_histories(url))
    audit = Audit(url.removeprefix("sqlite:///"))
    audit.install()
    return url, audit


@contextmanager
def _executing(ledger: Path, seed: str, api: str) -> Iterator[str]:
    words = [sys.executable, "-m", "tests.chaos.executor", str(ledger), seed, api]
    ledger.touch()
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/start"
        finally:
            process.kill()


# --- acts ------------------------------------------------------------------------------------------


def _strike(plan: Plan, fleet: Fleet, client: ServiceClient, story: Story) -> list[str]:
    """Inject faults while the client works; return the processes that exited on their own."""
    chance = Random(plan.seed)
    acts = {act: odds for act, odds in ACTS.items() if plan.database or act not in ("cut", "database")}
    working = threading.Thread(target=client.work)
    working.start()
    faults: list[str] = []
    ends = time.monotonic() + plan.seconds
    try:
        while (time.monotonic() < ends or not _is_enough(plan, story)) and not faults:
            (act,) = chance.choices(list(acts), list(acts.values()))
            _do(act, plan, fleet, chance, story)
            until = time.monotonic() + chance.uniform(LEAST_PAUSE_S, MOST_PAUSE_S)
            while time.monotonic() < until:
                fleet.go_on()
                faults += fleet.dead()
                time.sleep(LOOK_S)
    finally:
        client.leave()
        working.join()
    return faults


def _is_enough(plan: Plan, story: Story) -> bool:
    """Return whether enough happened for a verdict, however slow the machine is."""
    delivered = plan.ledger.read_bytes().count(b"\n")
    return story.strikes(ACTS) >= plan.least_strikes and delivered >= plan.least_deliveries


def _do(act: str, plan: Plan, fleet: Fleet, chance: Random, story: Story) -> None:
    if act in ("cut", "database"):
        assert plan.database is not None
        _hurt(plan.database, act, chance, story)
        return
    strikes_api = act != "freeze" and chance.random() < API_ODDS
    slots = [slot for slot in fleet.idle() if slot.name != API or strikes_api]
    if slots:
        fleet.strike(chance.choice(slots), act, chance)


def _hurt(database: Server, act: str, chance: Random, story: Story) -> None:
    story.outages.append(now_ms())
    if act == "cut":
        story.tell("cut", "all connections")
        database.execute(CUT)
    else:
        away_s = chance.uniform(0, LONG_S) if chance.random() < LONG else chance.uniform(0, SHORT_S)
        how = chance.choice([database.halt, database.crash])
        story.tell("database", f"{how.__name__}, away for {away_s:.1f} s")
        how()
        time.sleep(away_s)
        database.start()


def _settle(fleet: Fleet, client: ServiceClient, url: str, story: Story) -> list[str]:
    """Restart the fleet, end all schedules, and wait until no run is open."""
    story.tell("settle")
    fleet.start_all()
    end_at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    client.settle(end_at.isoformat())
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if time.time() > end_at.timestamp() + 2 and asyncio.run(_is_at_rest(url)):
            return []
        time.sleep(0.25)
    return ["runs stayed open", *(f"{name}: {''.join(log[-5:])}" for name, log in fleet.logs[-8:])]


async def _is_at_rest(url: str) -> bool:
    store = open_store(url)
    try:
        cases = await store.cases(NAMESPACE)
    finally:
        await store.close()
    return not any(case.runs or case.job.plan_at is not None for case in cases)


# --- afterwards ------------------------------------------------------------------------------------


async def _histories(url: str) -> list[History]:
    store = open_store(url)
    try:
        return [await _history(store, case.job.identity) for case in await store.cases(NAMESPACE)]
    finally:
        await store.close()


async def _history(store: Store, name: str) -> History:
    (case,) = await store.cases(NAMESPACE, [name])
    runs = await store.runs(NAMESPACE, name, limit=1_000_000)
    return History(case.job, runs, await store.ranges(NAMESPACE, name), await store.epochs(NAMESPACE, name))


def _figures(evidence: Evidence) -> dict[str, int]:
    return {
        "periods": sum(len(periods_of(history)[0]) for history in evidence.histories),
        "runs": sum(len(history.runs) for history in evidence.histories),
        "deliveries": len(evidence.deliveries),
        "repeats": repeats_of(evidence),
        "lost": sum(run.result == "lost" for history in evidence.histories for run in history.runs),
        "takeovers": len({lease.token for lease in evidence.leases}),
        "epochs": sum(1 + len(history.epochs) for history in evidence.histories),
    }
