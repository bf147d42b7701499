"""`kron dag run` and `kron dag worker`: execute the tasks of DAGs in this process."""

import asyncio
import logging
import os
import socket
from pathlib import Path
from typing import Annotated

import typer

from kron.app.dag.orchestrator import checked_document
from kron.app.dag.view import state_view
from kron.app.dag.worker import DagWorkerOptions
from kron.app.signals import on_stop
from kron.cli.main import GOOD, NO
from kron.cli.support.dag_client import store_url_of
from kron.cli.support.dag_file import COLORS, DagFile, Date, Input, dags_in, input_of, now_text
from kron.cli.support.option import AsJson, StoreUrl, whole_number
from kron.cli.support.terminal import Display, NoColor, say, show_json
from kron.core.dag.record import RUN_ENDS, DagRunStatus, DagState
from kron.core.errors import InvalidOptionError
from kron.core.time.duration import parse_duration
from kron.fronts.dag.python_dag import PythonDag
from kron.fronts.dag.runtime import DagRuntime
from kron.fronts.service.settings import Settings, read_settings, secrets_of
from kron.launchers.kubernetes.spec import KubernetesOptions
from kron.launchers.process.spec import ProcessOptions
from kron.launchers.spec import LauncherConfig
from kron.telemetry.log_format import start_logging

_log = logging.getLogger("kron.dag")
# How often the progress of a run is printed, in seconds.
POLL_S = 0.05
DagFiles = Annotated[
    list[str] | None, typer.Argument(metavar="[FILE]...", help="Python files with the functions of tasks.")
]
Slots = Annotated[
    int,
    typer.Option(
        "--slots", metavar="N", help="Tasks to execute at once.", parser=whole_number("--slots", 1, 10_000)
    ),
]
Lease = Annotated[
    str,
    typer.Option(
        "--lease",
        metavar="DURATION",
        help="Lease TTL: the tasks of a crashed worker are taken over after this.",
    ),
]
WorkerName = Annotated[
    str | None,
    typer.Option("--name", metavar="TEXT", help="Name of the worker.  [default: host and process]"),
]


def _launchers(settings: Settings, *more: object) -> LauncherConfig:
    """Return the broker, result backend and cluster that the settings name, with no limits on tasks."""
    return LauncherConfig((*more, settings.celery, KubernetesOptions(access=settings.cluster())))


def worker_command(
    files: DagFiles = None,
    slots: Slots = 32,
    lease: Lease = "30s",
    name: WorkerName = None,
    store: StoreUrl = None,
) -> int:
    """Execute the DAG tasks of a store until SIGTERM or Ctrl-C; several workers share them.

    It logs to standard error, as KRON_LOG_LEVEL and KRON_LOG_FORMAT say.

    \b
    Examples:
      kron dag worker --store sqlite:///kron.db
      kron dag worker etl.py --store postgresql://kron@db.example/kron --slots 8
    """  # noqa: D301
    settings = read_settings(os.environ, {}).settings
    dags = [dag for file in files or () for dag in dags_in(file)]
    functions = {word: function for dag in dags for word, function in dag.functions.items()}
    options = DagWorkerOptions(
        name=name or f"{socket.gethostname()}:{os.getpid()}",
        slots=slots,
        lease=parse_duration(lease),
        functions=functions,
        config=_launchers(settings),
    )
    start_logging(level=settings.log_level, log_format=settings.log_format, secrets=secrets_of(settings))

    async def work() -> None:
        async with DagRuntime(store_url_of(store), options=options) as runtime:
            on_stop(runtime.worker.stop)
            _log.info("%s: executing tasks, up to %d at once", options.name, options.slots)
            await runtime.worker.run()

    asyncio.run(work())
    return GOOD


def run_command(
    file: DagFile,
    dag: Annotated[
        str | None, typer.Option("--dag", metavar="NAME", help="The DAG, if the file has several.")
    ] = None,
    date: Date = None,
    input_: Input = None,
    store: StoreUrl = None,
    no_color: NoColor = False,
    as_json: AsJson = False,
) -> int:
    """Execute a DAG of a file here, with its progress; by default nothing is kept.

    \b
    Examples:
      kron dag run etl.py
      kron dag run etl.py --date 2026-06-01 --input '{"region": "eu"}' --store sqlite:///etl.db
    """  # noqa: D301
    chosen = _chosen(dags_in(file), dag)
    settings = read_settings(os.environ, {}).settings
    config = _launchers(settings, ProcessOptions(folder=str(Path(".kron/processes"))))
    options = DagWorkerOptions(name=f"terminal:{os.getpid()}", config=config)
    display = Display(no_color=no_color)

    async def work() -> DagState:
        async with DagRuntime(store or "memory://", options=options) as runtime:
            record = await runtime.deploy(chosen)
            if store is None:
                # Nothing else uses a store in memory, so one slot shows the order that a pool imposes.
                for pool in checked_document(chosen.dag_id, chosen.document).pools:
                    await runtime.store.set_pool(pool, 1)
            started = await runtime.orchestrator.start_run(
                dag_id=chosen.dag_id,
                version=record.version,
                logical_date=date or now_text(),
                input=input_of(input_),
            )
            return await _executed(runtime, started.run_id, display, silent=as_json)

    state = asyncio.run(work())
    if as_json:
        show_json(state_view(state))
    else:
        say(display.paint(f"{state.run.run_key}: {state.run.status}", COLORS.get(state.run.status)))
    return GOOD if state.run.status is DagRunStatus.SUCCESS else NO


async def _executed(runtime: DagRuntime, run_id: str, display: Display, *, silent: bool) -> DagState:
    """Execute a run with its progress; an interrupted one is cancelled."""
    watching = asyncio.create_task(_watch(runtime, run_id, display, silent=silent))
    try:
        await runtime.run_to_end(run_id)
    except asyncio.CancelledError:
        await runtime.orchestrator.cancel(run_id)
        raise
    await watching
    return await runtime.orchestrator.state(run_id)


def _chosen(dags: list[PythonDag], name: str | None) -> PythonDag:
    names = [each.dag_id for each in dags]
    if name is None and len(dags) > 1:
        raise InvalidOptionError(option="--dag", value=None, reason=f"use one of {', '.join(names)}")
    matching = [each for each in dags if name in (None, each.dag_id)]
    if not matching:
        raise InvalidOptionError(option="--dag", value=name, reason=f"use one of {', '.join(names)}")
    return matching[0]


async def _watch(runtime: DagRuntime, run_id: str, display: Display, *, silent: bool) -> None:
    """Print each change of a task, and the output of each attempt that ended, until the run has ended."""
    seen: dict[str, tuple[str, int]] = {}
    printed: set[tuple[str, int]] = set()
    while not silent:
        state = await runtime.orchestrator.state(run_id)
        attempts = await runtime.store.attempts(run_id)
        for name, task in state.tasks.items():
            for attempt in attempts:
                key = (attempt.task_id, attempt.attempt)
                if attempt.task_id == name and attempt.outcome is not None and key not in printed:
                    printed.add(key)
                    say(*(f"  {name} | {line}" for line in (attempt.output or "").splitlines()))
            if seen.get(name) != (task.status, task.attempt) and task.status != "waiting":
                seen[name] = (task.status, task.attempt)
                more = f" (attempt {task.attempt})" if task.attempt > 1 else ""
                error = f": {task.error}" if task.error else ""
                say(f"{display.paint(task.status.ljust(15), COLORS.get(task.status))} {name}{more}{error}")
        if state.run.status in RUN_ENDS:
            return
        await asyncio.sleep(POLL_S)
