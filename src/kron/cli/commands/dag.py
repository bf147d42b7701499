"""`kron dag`: DAGs and their runs in a store or a service, without executing their tasks."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, TypeVar

import typer

from kron.app.dag.trigger import CatchupTriggerRequest, checked_slots
from kron.app.dag.view import View
from kron.cli.main import GOOD, NO
from kron.cli.support.client import Limit
from kron.cli.support.dag_client import DagClient, DagServer, dag_call, store_url_of
from kron.cli.support.dag_file import COLORS, DagFile, Date, Input, dags_in, input_of, now_text
from kron.cli.support.option import AsJson, StoreUrl, one_of, whole_number
from kron.cli.support.terminal import Cell, Display, NoColor, Utc, progress, say, show_json
from kron.clocks.system import SystemClock
from kron.core.dag.record import DagRunStatus
from kron.core.time.duration import parse_duration
from kron.core.time.instant import MILLISECOND, instant_text
from kron.core.wording import counted
from kron.fronts.dag.runtime import DagRuntime, put_next

T = TypeVar("T")
# How many slots of a dry run are listed, and how wide a progress bar is.
MAX_LISTED, BAR = 50, 30
DagName = Annotated[str, typer.Argument(metavar="DAG", help="Name of the DAG.")]
OneDag = Annotated[str | None, typer.Argument(metavar="[DAG]", help="Only this DAG.  [default: all]")]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="Id of the run.")]
OneTask = Annotated[str | None, typer.Argument(metavar="[TASK]", help="Only this task.  [default: all]")]
SomeTasks = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TASK]...", help="Tasks to run again, with all downstream tasks.  [default: the failed ones]"
    ),
]
Version = Annotated[
    int | None,
    typer.Option("--version", metavar="N", help="Version of the DAG.  [default: latest published]"),
]
RerunKey = Annotated[
    str | None,
    typer.Option("--rerun-key", metavar="TEXT", help="Start another run of the same logical date."),
]
Status = Annotated[
    str | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        help="Only runs with this status.",
        parser=one_of("--status", DagRunStatus),
    ),
]
First = Annotated[str, typer.Option("--from", metavar="TIME", help="Logical date of the first slot.")]
Last = Annotated[
    str, typer.Option("--to", metavar="TIME", help="End of the range; a slot on it is included.")
]
Every = Annotated[str, typer.Option("--every", metavar="DURATION", help="Interval of the slots, e.g. 1h.")]
MaxSlots = Annotated[int, typer.Option("--max", metavar="N", help="Maximum number of slots in the range.")]
Rate = Annotated[
    int | None,
    typer.Option(
        "--rate",
        metavar="N",
        help="Start at most N runs a second.",
        parser=whole_number("--rate", 1, 100_000),
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List the slots, and start nothing.")]


def _call(store: str | None, work: Callable[[DagRuntime], Awaitable[T]]) -> T:
    async def called() -> T:
        async with DagRuntime(store_url_of(store)) as runtime:
            return await work(runtime)

    return asyncio.run(called())


def _cell(status: object) -> Cell:
    return Cell(str(status), COLORS.get(str(status)))


def _answer(document: object, show: Callable[[], None], *, as_json: bool) -> int:
    """Print a document as JSON, or show it to people."""
    if as_json:
        show_json(document)
    else:
        show()
    return GOOD


# --- reading -------------------------------------------------------------------------------------------


def list_command(
    server: DagServer = None,
    store: StoreUrl = None,
    no_color: NoColor = False,
    utc: Utc = False,
    as_json: AsJson = False,
) -> int:
    """List the DAGs that have runs, with the number of runs in each state.

    \b
    Examples:
      kron dag list
      kron dag list --store sqlite:///kron.db --json
      kron dag list --server http://127.0.0.1:8080
    """  # noqa: D301
    views = dag_call(server, store, lambda client: client.dags())
    display = Display(utc=utc, no_color=no_color)
    names = ("queued", "running", "success", "failed", "cancelled")
    rows = [
        (str(each["dag_id"]), "paused" if each["paused"] else "", *(str(each[name]) for name in names),
         display.time(each["latest"]))
        for each in views
    ]  # fmt: skip
    header = ("DAG", "", "QUEUED", "RUNNING", "SUCCESS", "FAILED", "CANCELLED", "LATEST")
    show = partial(display.table, header, rows, empty="no DAG has a run here yet")
    return _answer({"dags": views}, show, as_json=as_json)


def show_command(
    dag: DagName,
    version: Version = None,
    server: DagServer = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> int:
    """Show a version of a DAG: its tasks and their dependencies.

    \b
    Examples:
      kron dag show etl
      kron dag show etl --version 3 --json
    """  # noqa: D301
    record = dag_call(server, store, lambda client: client.definition(dag, version))
    nodes: list[dict[str, Any]] = record["dag"]["nodes"]  # type: ignore[index]
    rows = [(str(each["id"]), str(each["type"]), ", ".join(each.get("dependsOn", ()))) for each in nodes]

    def show() -> None:
        say(f"{dag} version {record['version']}, created {record['created_at']}")
        Display().table(("TASK", "TYPE", "DEPENDS ON"), rows, empty="no task")

    document = {"dag_id": dag, "version": record["version"], "dag": record["dag"]}
    return _answer(document, show, as_json=as_json)


def runs_command(
    dag: OneDag = None,
    status: Status = None,
    limit: Limit = None,
    server: DagServer = None,
    store: StoreUrl = None,
    no_color: NoColor = False,
    utc: Utc = False,
    as_json: AsJson = False,
) -> int:
    """List the runs of DAGs, the latest first.

    \b
    Examples:
      kron dag runs
      kron dag runs etl --status failed
    """  # noqa: D301
    views = dag_call(server, store, lambda client: client.runs(dag, status, limit or 100))
    display = Display(utc=utc, no_color=no_color)
    rows = [
        (str(each["run_id"]), str(each["dag_id"]), str(each["version"]), str(each["logical_date"]),
         _cell(each["status"]), display.distance(each["started_at"]),
         display.duration(each["started_at"], each["ended_at"]))
        for each in views
    ]  # fmt: skip
    header = ("RUN", "DAG", "VERSION", "LOGICAL DATE", "STATUS", "STARTED", "DURATION")
    show = partial(display.table, header, rows, empty="no run is recorded here yet")
    return _answer({"runs": views}, show, as_json=as_json)


def tasks_command(
    run: RunName,
    server: DagServer = None,
    store: StoreUrl = None,
    no_color: NoColor = False,
    utc: Utc = False,
    as_json: AsJson = False,
) -> int:
    """List the tasks of a run.

    \b
    Examples:
      kron dag tasks 4f1c...
    """  # noqa: D301
    state = dag_call(server, store, lambda client: client.state(run))
    show = partial(_show_tasks, state, Display(utc=utc, no_color=no_color))
    return _answer(state, show, as_json=as_json)


def _show_tasks(view: View, display: Display) -> None:
    tasks: list[dict[str, object]] = view["tasks"]  # type: ignore[assignment]
    rows = [
        (str(each["task_id"]), _cell(each["status"]), str(each["attempt"]),
         display.distance(each["started_at"]), display.duration(each["started_at"], each["ended_at"]),
         str(each["error"] or ""))
        for each in tasks
    ]  # fmt: skip
    say(f"{view['run_key']}: {view['status']}")
    display.table(("TASK", "STATUS", "ATTEMPT", "STARTED", "DURATION", "ERROR"), rows, empty="no task")


def logs_command(
    run: RunName,
    task: OneTask = None,
    server: DagServer = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> int:
    """Print the output of the attempts of a run, or of one of its tasks.

    \b
    Examples:
      kron dag logs 4f1c...
      kron dag logs 4f1c... load
    """  # noqa: D301
    found = dag_call(server, store, lambda client: client.attempts(run, task))
    attempts = sorted(found, key=lambda each: str(each["started_at"]))
    if as_json:
        show_json({"attempts": attempts})
        return GOOD
    for each in attempts:
        how = f"{each['outcome'] or 'executing'} {each['error'] or ''}".rstrip()
        say(f"== {each['task_id']}, attempt {each['attempt']}: {how}")
        say(*str(each["output"] or "").splitlines())
    if not attempts:
        say("none: no attempt is recorded")
    return GOOD if attempts else NO


# --- starting ------------------------------------------------------------------------------------------


def put_command(file: DagFile, store: StoreUrl = None, as_json: AsJson = False) -> int:
    """Store the DAGs of a file, each as its next version unless the latest one is the same.

    \b
    Examples:
      kron dag put etl.py
    """  # noqa: D301
    dags = dags_in(file)

    async def work(runtime: DagRuntime) -> list[dict[str, object]]:
        stored = [
            await put_next(runtime.orchestrator, runtime.workflows, dag.dag_id, dag.document) for dag in dags
        ]
        return [{"dag_id": each.workflow_id, "version": each.version} for each in stored]

    views = _call(store, work)
    lines = [f"{each['dag_id']} version {each['version']}" for each in views]
    return _answer({"dags": views}, partial(say, *lines), as_json=as_json)


def trigger_command(
    dag: DagName,
    date: Date = None,
    version: Version = None,
    input_: Input = None,
    rerun_key: RerunKey = None,
    server: DagServer = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> int:
    """Start a run of a DAG, or return the run that has the same logical date.

    \b
    Examples:
      kron dag trigger etl --date 2026-06-01
      kron dag trigger etl --date 2026-06-01 --rerun-key again
    """  # noqa: D301
    document = {
        "logical_date": date or now_text(),
        "version": version,
        "input": input_of(input_),
        "rerun_key": rerun_key,
    }
    started = dag_call(server, store, lambda client: client.start(dag, document))
    word = "started" if started["created"] else started["status"]
    line = f"{started['run_id']} {started['run_key']}: {word}"
    return _answer(started, partial(say, line), as_json=as_json)


def catchup_command(
    dag: DagName,
    first: First,
    last: Last,
    every: Every,
    most: MaxSlots = 10_000,
    version: Version = None,
    input_: Input = None,
    rate: Rate = None,
    dry_run: DryRun = False,
    server: DagServer = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> int:
    """Start one run for each slot of a range, except for slots that have one already.

    An interrupted catch-up is continued by the same command.

    \b
    Examples:
      kron dag catchup etl --from 2026-06-01 --to 2026-06-02 --every 1h --dry-run
      kron dag catchup etl --from 2026-06-01 --to 2026-06-30 --every 1d --rate 10
    """  # noqa: D301
    request = CatchupTriggerRequest(
        dag_id=dag,
        range_start_logical_date=first,
        range_end_logical_date=last,
        slot_interval_ms=parse_duration(every) // MILLISECOND,
        max_slots=most,
    )
    slots = checked_slots(request)
    if dry_run:
        runs = dag_call(server, store, lambda client: client.slot_runs(dag, slots))
        return _show_slots(slots, runs, as_json=as_json)
    document = {"version": version, "input": input_of(input_)}
    created = dag_call(server, store, lambda client: _catch_up(client, dag, slots, document, rate))
    existing = len(slots) - created
    line = f"{counted(len(slots), 'slot')}: {created} started, {existing} had a run before"
    counts = {"requested_slot_count": len(slots), "started": created, "existing": existing}
    return _answer(counts, partial(say, line), as_json=as_json)


async def _catch_up(
    client: DagClient, dag: str, slots: range, document: Mapping[str, object], rate: int | None
) -> int:
    clock, created = SystemClock(), 0
    began, size = clock.now(), min(client.chunk, rate or client.chunk)
    for first in range(0, len(slots), size):
        chunk = slots[first : first + size]
        started = await client.catch_up(dag, chunk, document)
        created += started
        progress(f"{_bar(first + len(chunk), len(slots))} slots, {created} started")
        if rate is not None and started:
            await clock.sleep_until(began + timedelta(seconds=created / rate))
    progress("")
    return created


def _bar(done: int, total: int) -> str:
    """Return a progress bar with both numbers."""
    filled = BAR * done // total
    return f"[{'#' * filled}{'.' * (BAR - filled)}] {done:,}/{total:,}"


def _show_slots(slots: range, runs: Mapping[str, str], *, as_json: bool) -> int:
    """Print the slots of a dry run, and which of them have a run."""
    listed = [instant_text(slot) for slot in slots]
    hidden = max(0, len(listed) - MAX_LISTED)

    def show() -> None:
        rows = [(slot, _cell(runs.get(slot, "starts"))) for slot in listed[:MAX_LISTED]]
        Display().table(("SLOT", "RUN"), rows, empty="no slot")
        if hidden:
            say(f"... and {hidden:,} more, the last at {listed[-1]}")
        kept = f"{len(runs):,} {'has' if len(runs) == 1 else 'have'} a run"
        found = f"{len(slots) - len(runs):,} would start, {kept}"
        say(f"{counted(len(slots), 'slot')}: {found}; nothing was started")

    document = {"requested_slot_count": len(slots), "slots": listed, "existing_runs": dict(runs)}
    return _answer(document, show, as_json=as_json)


# --- by hand -------------------------------------------------------------------------------------------


def retry_command(
    run: RunName,
    tasks: SomeTasks = None,
    server: DagServer = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> int:
    """Run tasks of a run again, with all that depend on them.

    \b
    Examples:
      kron dag retry 4f1c...
      kron dag retry 4f1c... load
    """  # noqa: D301
    state = dag_call(server, store, lambda client: client.retry(run, tasks or ()))
    return _answer(state, partial(_show_tasks, state, Display()), as_json=as_json)


def cancel_command(
    run: RunName, server: DagServer = None, store: StoreUrl = None, as_json: AsJson = False
) -> int:
    """Cancel a run: workers end its executing tasks, and no further task starts.

    \b
    Examples:
      kron dag cancel 4f1c...
    """  # noqa: D301
    state = dag_call(server, store, lambda client: client.cancel(run))
    return _answer(state, partial(_show_tasks, state, Display()), as_json=as_json)


def pause_command(dag: DagName, server: DagServer = None, store: StoreUrl = None) -> int:
    """Pause a DAG: no further task of it starts; runs can still be triggered, and wait.

    \b
    Examples:
      kron dag pause etl
    """  # noqa: D301
    dag_call(server, store, lambda client: client.pause(dag, paused=True))
    say(f"{dag}: paused")
    return GOOD


def resume_command(dag: DagName, server: DagServer = None, store: StoreUrl = None) -> int:
    """Resume a paused DAG.

    \b
    Examples:
      kron dag resume etl
    """  # noqa: D301
    dag_call(server, store, lambda client: client.pause(dag, paused=False))
    say(f"{dag}: resumed")
    return GOOD


def pool_command(
    name: Annotated[str, typer.Argument(metavar="POOL", help="Name of the pool.")],
    slots: Annotated[
        int, typer.Argument(metavar="SLOTS", help="How many of its tasks execute at once.", min=0)
    ],
    store: StoreUrl = None,
) -> int:
    """Set how many tasks of a pool execute at once, over all DAGs and workers.

    \b
    Examples:
      kron dag pool database 4
    """  # noqa: D301
    _call(store, lambda runtime: runtime.store.set_pool(name, slots))
    say(f"{name}: {counted(slots, 'slot')}")
    return GOOD
