"""Pages of DAGs: their list, one as a graph with a grid of its runs, one run with its attempts, and actions.

A form is authorized, scoped to the caller's tenant and audited as the same verb of the API.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from kron.app.dag.trigger import CatchupTriggerRequest, checked_slots
from kron.core.dag.contract import DagError
from kron.core.dag.definition import DagDefinition, definition_of
from kron.core.dag.record import RUN_ENDS, DagAttempt, DagRun, DagState, DagTaskStatus
from kron.core.errors import InputError
from kron.core.time.instant import MILLISECOND, instant_text
from kron.core.value_types import DURATION
from kron.fronts.service.dags import MAX_SLOTS, TenantDags
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.web.dag_layout import HEIGHT, WIDTH, Picture, picture_of
from kron.fronts.service.web.render import READ, form_fields, rendered, to, url_of
from kron.fronts.service.web.time_text import UTC_ZONE, PageTime, moment_of, span

# How many DAGs, runs of the list, and columns and rows of the grid a page shows.
DAGS, STRIP, COLUMNS, ROWS = 25, 20, 25, 200
# States of tasks that are read for a grid: of a DAG with thousands of tasks it has fewer columns.
MAX_CELLS = 20_000
# How many attempts a page of a run shows, the latest of each task first.
MAX_ATTEMPTS = 300
# Slots that the dry run of a catch-up lists.
MAX_LISTED = 100
# The look and the sign of each state: a colour is never the only difference.
LOOKS = {
    "queued": ("wait", "◌"),
    "waiting": ("none", "·"),
    "running": ("run", "▶"),
    "success": ("ok", "✓"),
    "failed": ("bad", "✕"),
    "timeout": ("bad", "✕"),
    "lost": ("bad", "✕"),
    "upstream_failed": ("miss", "⊘"),
    "skipped": ("skip", "↷"),
    "cancelled": ("stop", "■"),
}
Name = Annotated[str, Query(alias="id", description="the DAG")]
RunId = Annotated[str, Query(alias="id", description="the run")]


class StateMark(NamedTuple):
    """The state of a run or a task as a page shows it."""

    look: str
    sign: str
    word: str
    title: str
    run_id: str


class DagRow(NamedTuple):
    """A DAG in the list: its latest published version, and its last runs, oldest first."""

    dag_id: str
    version: int | None
    tasks: int
    is_paused: bool
    problem: str | None
    marks: list[StateMark]
    latest: PageTime | None


class DagPage(NamedTuple):
    """One DAG: its graph with the states of its latest run, and a grid of its tasks by its runs."""

    dag_id: str
    version: int
    is_paused: bool
    picture: Picture | None
    nodes: Mapping[str, StateMark | None]
    runs: list[DagRun]
    heads: list[StateMark]
    rows: list[tuple[str, list[StateMark | None]]]
    hidden_rows: int
    following: str | None
    dates: tuple[str, ...]


class AttemptBar(NamedTuple):
    """An attempt in the Gantt chart, with its output; places are percent of the whole run."""

    task_id: str
    attempt: DagAttempt
    mark: StateMark
    x: float
    width: float
    title: str


class TaskRow(NamedTuple):
    """A task of a run: its state, and whether it can be run again now."""

    task_id: str
    mark: StateMark
    attempt: int
    error: str | None
    can_retry: bool


class DagRunChart(NamedTuple):
    """One run: its graph, its tasks and the chart of its attempts."""

    run: DagRun
    mark: StateMark
    logical_date: PageTime
    started: PageTime | None
    took_ms: int | None
    is_open: bool
    can_retry: bool
    picture: Picture | None
    nodes: Mapping[str, StateMark | None]
    tasks: list[TaskRow]
    bars: list[AttemptBar]
    # The milliseconds from the first start to the last end.
    bars_ms: int
    hidden_bars: int


# --- values ----------------------------------------------------------------------------------------


def mark_of(status: str, run_id: str, label: str) -> StateMark:
    """Return a state as a page shows it."""
    look, sign = LOOKS[status]
    word = status.replace("_", " ")
    return StateMark(look, sign, word, f"{label}: {word}", run_id)


def run_mark(run: DagRun) -> StateMark:
    """Return the state of a run."""
    return mark_of(run.status.value, run.run_id, instant_text(run.logical_date))


def _task_marks(state: DagState) -> dict[str, StateMark]:
    date, run_id = instant_text(state.run.logical_date), state.run.run_id
    return {name: mark_of(task.status.value, run_id, f"{name}, {date}") for name, task in state.tasks.items()}


def _picture(definition: DagDefinition) -> Picture | None:
    return picture_of({name: spec.depends_on for name, spec in definition.tasks.items()})


def dag_page(
    dag_id: str,
    definition: DagDefinition,
    version: int,
    states: Sequence[DagState],
    columns: int = COLUMNS,
    *,
    is_paused: bool,
) -> DagPage:
    """Return the page of a DAG with up to `columns` of its runs, in the order of their logical dates."""
    ordered = sorted(states, key=lambda state: (state.run.logical_date, state.run.created_at))
    marks = [_task_marks(state) for state in ordered]
    newest = max(range(len(states)), key=lambda place: ordered[place].run.created_at, default=None)
    latest = {} if newest is None else marks[newest]
    # Tasks of earlier versions stand below those of the present one.
    names = list(dict.fromkeys([*definition.tasks, *(name for each in marks for name in each)]))
    return DagPage(
        dag_id=dag_id,
        version=version,
        is_paused=is_paused,
        picture=_picture(definition),
        nodes={name: latest.get(name) for name in definition.tasks},
        runs=[state.run for state in ordered],
        heads=[run_mark(state.run) for state in ordered],
        rows=[(name, [each.get(name) for each in marks]) for name in names[:ROWS]],
        hidden_rows=max(0, len(names) - ROWS),
        following=states[-1].run.run_id if len(states) == columns else None,
        dates=tuple(instant_text(each.run.logical_date) for each in (*ordered[:1], *ordered[-1:])),
    )


def _length_of(attempts: Sequence[DagAttempt], now: int) -> int:
    """Return the milliseconds from the first start of some attempts to the last end."""
    starts = [each.started_at for each in attempts]
    return max((each.ended_at or now for each in attempts), default=0) - min(starts, default=0)


def gantt_of(run: DagRun, attempts: Sequence[DagAttempt], now: int) -> list[AttemptBar]:
    """Return the attempts of a run by their start, from the first start to the last end."""
    if not attempts:
        return []
    start = min(each.started_at for each in attempts)
    whole = max(1, _length_of(attempts, now))
    bars = []
    for each in sorted(attempts, key=lambda one: (one.started_at, one.task_id, one.attempt)):
        took = max(0, (each.ended_at or now) - each.started_at)
        word = "running" if each.outcome is None else each.outcome.value
        mark = mark_of(word, run.run_id, f"{each.task_id}, attempt {each.attempt}")
        x = round(100 * (each.started_at - start) / whole, 2)
        width = min(100 - x, max(0.5, round(100 * took / whole, 2)))
        title = f"{span(took)}, {word}" + ("" if each.error is None else f": {each.error}")
        bars.append(AttemptBar(each.task_id, each, mark, x, width, title))
    return bars


def run_page(state: DagState, attempts: Sequence[DagAttempt], now: int) -> DagRunChart:
    """Return the page of a run."""
    run, marks = state.run, _task_marks(state)
    is_open = run.status not in RUN_ENDS
    ends = run.ended_at if run.ended_at is not None else now
    bars, blocked = gantt_of(run, attempts, now), _blocked(state)
    return DagRunChart(
        run=run,
        mark=run_mark(run),
        logical_date=moment_of(run.logical_date, UTC_ZONE, now),
        started=None if run.started_at is None else moment_of(run.started_at, UTC_ZONE, now),
        took_ms=None if run.started_at is None else max(0, ends - run.started_at),
        is_open=is_open,
        can_retry=not is_open and run.status.value != "success",
        picture=_picture(run.tasks),
        nodes=dict(marks),
        tasks=[
            TaskRow(
                name,
                marks[name],
                task.attempt,
                task.error,
                task.attempt > 0 and task.ended_at is not None and name not in blocked,
            )
            for name, task in list(state.tasks.items())[:ROWS]
        ],
        bars=bars[-MAX_ATTEMPTS:],
        bars_ms=max(0, _length_of(attempts, now)),
        hidden_bars=max(0, len(bars) - MAX_ATTEMPTS),
    )


def _blocked(state: DagState) -> set[str]:
    """Return the executing tasks and all before them: they cannot be run again now."""
    left = [name for name, task in state.tasks.items() if task.status is DagTaskStatus.RUNNING]
    blocked = set(left)
    while left:
        for needed in state.run.tasks.tasks[left.pop()].depends_on:
            if needed not in blocked:
                blocked.add(needed)
                left.append(needed)
    return blocked


# --- queries ---------------------------------------------------------------------------------------


def _tasks_in(text: str) -> int:
    """Return how many tasks a stored DAG has."""
    return len(json.loads(text)["nodes"])


class DagPages:
    """Queries the values that pages of DAGs show."""

    def __init__(self, registrar: Registrar) -> None:
        self._registrar = registrar

    @property
    def dags(self) -> TenantDags:
        """Return the caller's DAGs, or raise DagError where the service does not run them."""
        if self._registrar.dags is None:
            raise DagError(
                "DAG_DEFINITION_NOT_FOUND",
                'This service runs no DAGs; set its executor to {"kind": "dag"}',
                category="not_found",
            )
        return TenantDags(self._registrar.dags, self._registrar)

    @property
    def is_on(self) -> bool:
        """Return whether the service runs DAGs."""
        return self._registrar.dags is not None

    def now(self) -> int:
        """Return the current instant in milliseconds."""
        return self._registrar.now()

    async def listed(self, after: str) -> tuple[list[DagRow], str | None]:
        """Return a page of DAGs by name, and the name after which the next page starts."""
        names = await self._registrar.workflows.names(after=after, limit=DAGS + 1)
        paused = await self.dags.store.paused()
        rows = [await self._row(name, is_paused=name in paused) for name in names[:DAGS]]
        return rows, names[DAGS - 1] if len(names) > DAGS else None

    async def _row(self, dag_id: str, *, is_paused: bool) -> DagRow:
        version, tasks, problem = None, 0, None
        runs: list[DagRun] = []
        try:
            record = await self.dags.orchestrator.definition(dag_id)
            version, runs = record.version, await self.dags.page(dag_id, None, None, STRIP)
            tasks = await self._registrar.compute_pool.run(_tasks_in, record.dag)
        except DagError as error:
            problem = str(error)
        latest = moment_of(runs[0].created_at, UTC_ZONE, self.now()) if runs else None
        marks = [run_mark(run) for run in reversed(runs)]
        return DagRow(dag_id, version, tasks, is_paused, problem, marks, latest)

    async def dag(self, dag_id: str, cursor: str | None) -> DagPage:
        """Return one DAG with a page of its runs."""
        dags = self.dags
        record = await dags.orchestrator.definition(dag_id)
        compute = self._registrar.compute_pool.run
        definition = await compute(definition_of, record.dag, dag_id)
        columns = max(1, min(COLUMNS, MAX_CELLS // len(definition.tasks)))
        runs = await dags.page(dag_id, None, cursor, columns)
        states = [await dags.orchestrator.state(run.run_id) for run in runs]
        is_paused = dag_id in await dags.store.paused()
        return await compute(
            lambda: dag_page(dag_id, definition, record.version, states, columns, is_paused=is_paused)
        )

    async def run(self, run_id: str) -> DagRunChart:
        """Return one run with its attempts and their output."""
        state = await self.dags.state(run_id)
        attempts = await self.dags.store.attempts(run_id)
        return await self._registrar.compute_pool.run(run_page, state, attempts, self.now())


# --- routes ----------------------------------------------------------------------------------------


def add_dags(router: APIRouter, registrar: Registrar) -> None:
    """Add the routes of pages of DAGs."""
    pages = DagPages(registrar)
    _add_reads(router, pages)
    _add_catchup(router, pages)
    _add_changes(router, pages)


def _add_reads(router: APIRouter, pages: DagPages) -> None:
    @router.api_route("/ui/dags", methods=READ)
    async def dags(after: str = "") -> Response:
        rows, following = await pages.listed(after) if pages.is_on else ([], None)
        known = {"is_first": not after, "is_on": pages.is_on}
        return await rendered("dags.html", pages.now(), 200, rows=rows, following=following, **known)

    @router.api_route("/ui/dag", methods=READ)
    async def dag(name: Name, cursor: str | None = None) -> Response:
        shown = await pages.dag(name, cursor)
        box = {"width": WIDTH, "height": HEIGHT}
        return await rendered("dag.html", pages.now(), it=shown, is_first=cursor is None, box=box)

    @router.api_route("/ui/dag/run", methods=READ)
    async def run(run_id: RunId) -> Response:
        shown = await pages.run(run_id)
        return await rendered("dag_run.html", pages.now(), it=shown, box={"width": WIDTH, "height": HEIGHT})


def _add_catchup(router: APIRouter, pages: DagPages) -> None:
    @router.api_route("/ui/dag/catchup", methods=READ)
    async def plan_catchup(
        name: Name,
        start: Annotated[str, Query(alias="from")] = "",
        end: Annotated[str, Query(alias="to")] = "",
        every: str = "1d",
        started: Annotated[int | None, Query(ge=0, le=MAX_SLOTS)] = None,
    ) -> Response:
        await pages.dags.orchestrator.definition(name)
        fields = {"from": start.strip(), "to": end.strip(), "every": every.strip()}
        values: dict[str, object] = {"slots": None, "missing": 0, "problem": None, "started": started}
        if fields["from"] and fields["to"]:
            try:
                slots = checked_slots(_catchup_of(name, fields))
                runs = await pages.dags.orchestrator.slot_runs(name, slots)
                marks = {run.logical_date: run_mark(run) for run in runs}
                values["slots"] = [(instant_text(slot), marks.get(slot)) for slot in slots]
                values["missing"] = len(slots) - len(runs)
            except (DagError, InputError) as error:
                values["problem"] = str(error)
        code = 400 if values["problem"] else 200
        known = {"name": name, "fields": fields, "listed": MAX_LISTED}
        return await rendered("dag_catchup.html", pages.now(), code, **known, **values)

    @router.post("/ui/dag/catchup")
    async def catch_up(request: Request, name: Name) -> Response:
        fields = await form_fields(request)
        runs = await pages.dags.catch_up(_catchup_of(name, fields))
        created = str(sum(run.created for run in runs))
        query = {key: fields.get(key, "") for key in ("from", "to", "every")}
        return to(url_of("/ui/dag/catchup", id=name, **query, started=created))


def _catchup_of(name: str, fields: Mapping[str, str]) -> CatchupTriggerRequest:
    every = DURATION.parse(fields.get("every", ""))
    assert isinstance(every, timedelta), "a duration"
    return CatchupTriggerRequest(
        dag_id=name,
        range_start_logical_date=fields.get("from", ""),
        range_end_logical_date=fields.get("to", ""),
        slot_interval_ms=every // MILLISECOND,
        max_slots=MAX_SLOTS,
    )


def _add_changes(router: APIRouter, pages: DagPages) -> None:
    @router.post("/ui/dag/trigger")
    async def trigger(request: Request, name: Name) -> Response:
        fields = await form_fields(request)
        date = fields.get("logical_date", "").strip() or instant_text(pages.now())
        started = await pages.dags.start(name, logical_date=date)
        return to(url_of("/ui/dag/run", id=started.run_id))

    @router.post("/ui/dag/pause")
    async def pause(request: Request, name: Name) -> Response:
        fields = await form_fields(request)
        await pages.dags.pause(name, paused=fields.get("paused") == "yes")
        return to(url_of("/ui/dag", id=name))

    @router.post("/ui/dag/run/cancel")
    async def cancel(run_id: RunId) -> Response:
        await pages.dags.cancel(run_id)
        return to(url_of("/ui/dag/run", id=run_id))

    @router.post("/ui/dag/run/retry")
    async def retry(request: Request, run_id: RunId) -> Response:
        task = (await form_fields(request)).get("task")
        await pages.dags.retry(run_id, [task] if task else [])
        return to(url_of("/ui/dag/run", id=run_id))
