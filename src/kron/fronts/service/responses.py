"""Responses: the documents that the routes answer with, in SPEC 3's words.

The registrar and the client build them, and the API derives its models and its OpenAPI schemas from them.
"""

from collections.abc import Mapping
from typing import NotRequired, TypeAlias, TypedDict

# Any document that is only read.
View: TypeAlias = Mapping[str, object]

# --- schedules -----------------------------------------------------------------------------------


class ScheduleState(TypedDict):
    """The part of a schedule that is not its definition: its owner, its launcher and its progress.

    `next_nominal_at` is the next period, and `next_run_at` the same; `next_start_at` is when a run starts
    next. `passed_over` periods before that start cannot start. `phase` is SPEC 4's word for the foremost open
    period.
    """

    schedule_id: str
    workflow_id: str | None
    version: int | None
    user_id: str | None
    next_run_at: str | None
    next_nominal_at: str | None
    next_start_at: str | None
    passed_over: int
    phase: str | None
    suspended: bool
    paused: bool
    paused_because: str | None
    paused_until: str | None
    launcher: dict[str, object]
    applied_set: str | None
    notify: dict[str, object] | None
    sentence: str
    failures: int
    last_start_at: str | None
    last_success_at: str | None
    last_failure_at: str | None
    created_at: str
    updated_at: str


class DefinitionView(TypedDict):
    """A stored schedule in a job file's words, its ETag, and the set it was applied with."""

    definition: dict[str, object]
    etag: str
    applied_set: str | None


class DefinitionPage(TypedDict):
    """A page of definitions, and the cursor of the next one."""

    jobs: list[DefinitionView]
    next_cursor: str | None


class ResumeEffect(TypedDict):
    """How many periods a resume starts, queues and drops by reason, and the first nominal times it starts."""

    would_start: int
    would_wait: int
    would_drop: dict[str, int]
    starts: list[str]


class AppliedView(TypedDict):
    """What applying a set of jobs does to one schedule, with its definitions if they differ.

    `applied_set` and `etag` are those before. `effect` is what starts if the change lets a stopped schedule
    run; of many such changes the first ones have it.
    """

    schedule_id: str
    change: str
    before: dict[str, object] | None
    after: dict[str, object] | None
    applied_set: str | None
    etag: str
    effect: NotRequired[ResumeEffect]


class ApplyReceipt(TypedDict):
    """The changes that applying a set of jobs made, or would make."""

    dry_run: bool
    changes: list[AppliedView]


class Receipt(TypedDict):
    """The result of an upsert: when the schedule runs next, and the ETag of its new state.

    If the upsert lets a stopped schedule run, it has what that starts, keeps waiting and drops.
    """

    schedule_id: str
    next_run_at: str | None
    etag: str
    would_start: NotRequired[int]
    would_wait: NotRequired[int]
    would_drop: NotRequired[dict[str, int]]
    starts: NotRequired[list[str]]


class PauseReceipt(Receipt):
    """The result of a pause, or of a resume with the periods of the pause that start.

    `note` says if the definition suspends the schedule, so that nothing starts after a resume either.
    """

    paused: bool
    suspended: bool
    note: NotRequired[str]


class ResumeForecast(ResumeEffect):
    """The effect that a resume of a schedule would have now; `note` if its definition suspends it."""

    schedule_id: str
    note: NotRequired[str]


class BulkReceipt(TypedDict):
    """How many schedules a bulk request stored, in how many transactions."""

    upserted: int
    batches: int


class UpcomingTime(TypedDict):
    """A nominal time and its fire time, None if the constraints allow none."""

    run_at: str
    fire_at: str | None


class ClockChangeView(TypedDict):
    """The effect of a clock change on one wall time: moved, dropped or repeated."""

    at: str
    wall_time: str
    run_at: str | None
    mark: str | None
    note: str | None


class SchedulePreview(TypedDict):
    """When an unsaved schedule would run, and the clock changes of the next 400 days that affect it."""

    sentence: str
    timezone: str
    times: list[UpcomingTime]
    clock_changes: list[ClockChangeView]


# --- runs ----------------------------------------------------------------------------------------


class RunView(TypedDict):
    """A run with its status and the reason for it; `retry_at` is when a failed one is tried again.

    `phase` is SPEC 4's word for the status: Planned, Eligible, Running, Completed or Terminal.
    """

    idempotency_key: str
    schedule_id: str
    run_at: str
    fire_at: str
    status: str
    phase: str
    outcome: str | None
    reason: str
    sentence: str
    kind: str
    attempt: int
    run_id: str | None
    started_at: str | None
    ended_at: str | None
    result: str | None
    error: str | None
    retry_at: str | None
    created_at: str


class RequestedRun(RunView):
    """A run that was requested; `note` if its schedule is paused or suspended, which does not hold it."""

    request_id: str
    note: str | None


class AttemptView(TypedDict):
    """An earlier attempt of a run."""

    attempt: int
    run_id: str | None
    started_at: str | None
    ended_at: str | None
    result: str | None
    error: str | None


class RunWithAttempts(RunView):
    """A run with its earlier attempts."""

    attempts: list[AttemptView]


class RangeView(TypedDict):
    """Periods that were dropped together for one reason."""

    first_run_at: str
    last_run_at: str
    periods: int
    outcome: str
    reason: str
    sentence: str
    created_at: str


class RunPage(TypedDict):
    """A page of runs, the periods dropped among them, and the cursor of the next page."""

    runs: list[RunView]
    dropped: list[RangeView]
    next_cursor: str | None


class PeriodRuns(TypedDict):
    """All runs of one period: its own first, then requested ones."""

    schedule_id: str
    period_id: str
    runs: list[RunWithAttempts]


class RunOutput(TypedDict):
    """A part of the output of an attempt, in base64, and the state of its process.

    `offset` is where the next part begins; `note` says why there is no output.
    """

    schedule_id: str
    period_id: str
    idempotency_key: str
    attempt: int
    attempts: int
    status: str
    ended: bool
    output: str
    offset: int
    note: str | None
    pid: int | None
    code: int | None
    cpu_s: float | None
    max_rss_kb: int | None
    output_lost: str | None
    bytes: int | None


class BackfilledRun(TypedDict):
    """A run of a past period."""

    run_at: str
    idempotency_key: str


class BackfillReceipt(TypedDict):
    """The runs a backfill requested, or would request.

    `starts` is `now`, or `on_resume` while the schedule is paused or suspended. `already_asked` counts the
    periods of the range that a backfill requested before.
    """

    request_id: str
    dry_run: bool
    only: str
    count: int
    runs: list[BackfilledRun]
    starts: str
    already_asked: int
    still_to_be_judged: int


class LinkView(TypedDict):
    """A record that a fact names: a `period` by its id, or a `run` by its idempotency key."""

    kind: str
    id: str


class FactView(TypedDict):
    """One fact of an explanation."""

    code: str
    sentence: str
    at: str | None
    links: list[LinkView]


class CounterfactualView(TypedDict):
    """What would have become of a period under changed fields, and what that assumes beyond the records."""

    changes: dict[str, object]
    outcome: str | None
    code: str
    headline: str
    facts: list[FactView]
    assumptions: list[str]


class WhyView(TypedDict):
    """The chain of facts behind a period."""

    schedule_id: str
    period_id: str | None
    outcome: str | None
    code: str
    headline: str
    remedy: str | None
    facts: list[FactView]
    counterfactual: CounterfactualView | None


# --- workflows -----------------------------------------------------------------------------------


class DeployedSchedule(TypedDict):
    """A schedule of a workflow, and when it runs next."""

    schedule_id: str
    next_run_at: str | None


class DeploymentReceipt(TypedDict):
    """The result of a deployment, or of its dry run."""

    workflow_id: str
    version: int
    newest_version: int
    new: bool
    dry_run: bool
    upserted: list[DeployedSchedule]
    retired: list[str]


class WorkflowView(TypedDict):
    """A version of a workflow."""

    workflow_id: str
    version: int
    user_id: str
    created_at: str
    dag: dict[str, object]


class WorkflowVersionView(TypedDict):
    """A version of a workflow, its owner and when it was stored."""

    version: int
    user_id: str
    created_at: str


class WorkflowVersions(TypedDict):
    """The versions of a workflow, newest first."""

    workflow_id: str
    versions: list[WorkflowVersionView]


class StartReceipt(TypedDict):
    """An accepted start; `repeated` if its key was accepted before."""

    accepted: bool
    run_id: str | None
    repeated: bool


# --- DAG runs ------------------------------------------------------------------------------------


class DagSummaryView(TypedDict):
    """A DAG: the number of its runs in each state, and the latest logical date."""

    dag_id: str
    paused: bool
    queued: int
    running: int
    success: int
    failed: int
    cancelled: int
    latest: str | None


class DagSummaryPage(TypedDict):
    """DAGs by name; with a cursor there may be more."""

    dags: list[DagSummaryView]
    cursor: str | None


class DagRunReceipt(TypedDict):
    """A run that was started, or that its key had started before (`created` is false then)."""

    run_id: str
    run_key: str
    dag_id: str
    version: int
    logical_date: str
    status: str
    created: bool


class DagCatchupReceipt(TypedDict):
    """The slots of a range, and their runs from the earliest to the latest.

    A dry run starts none, and lists those that slots have.
    """

    requested_slot_count: int
    slots: list[str]
    started_runs: list[DagRunReceipt]
    existing_runs: list[DagRunReceipt]
    dry_run: bool


class DagRunView(TypedDict):
    """A run of a DAG."""

    run_id: str
    run_key: str
    dag_id: str
    version: int
    logical_date: str
    trigger: str
    rerun_key: str | None
    status: str
    created_at: str
    started_at: str | None
    ended_at: str | None


class DagRunPage(TypedDict):
    """Runs of a DAG, latest first; with a cursor there may be more."""

    runs: list[DagRunView]
    cursor: str | None


class DagTaskView(TypedDict):
    """A task of a run."""

    task_id: str
    depends_on: list[str]
    status: str
    attempt: int
    started_at: str | None
    ended_at: str | None
    due_at: str | None
    worker: str | None
    error: str | None


class DagStateView(DagRunView):
    """A run of a DAG with its tasks, in the order of its definition."""

    tasks: list[DagTaskView]


class DagAttemptView(TypedDict):
    """An attempt of a task, with the last part of its output."""

    task_id: str
    attempt: int
    worker: str
    started_at: str
    ended_at: str | None
    outcome: str | None
    error: str | None
    output: str | None


class DagAttempts(TypedDict):
    """The attempts of a run, by task and number."""

    attempts: list[DagAttemptView]


class DagPauseReceipt(TypedDict):
    """Whether a DAG is paused."""

    dag_id: str
    paused: bool


# --- operation -----------------------------------------------------------------------------------


class AuditView(TypedDict):
    """One change: its time, caller, request, action and target, with the state before and after."""

    at: str
    who: str
    request_id: str | None
    action: str
    name: str
    user_id: str | None
    before: dict[str, object] | None
    after: dict[str, object] | None


class AuditPage(TypedDict):
    """A page of changes, latest first."""

    entries: list[AuditView]
    next_cursor: str | None


class WorkerView(TypedDict):
    """A worker: its state, its shards, and when it was last heard from."""

    worker: str
    state: str
    shard_count: int
    shards: str
    taken_over_at: str | None
    heartbeat_at: str | None
    lease_until: str | None
    drain_requested_at: str | None
    version: str | None


class WorkerList(TypedDict):
    """All workers, by name."""

    workers: list[WorkerView]


class Liveness(TypedDict):
    """The process is alive."""

    status: str


class Readiness(Liveness):
    """Whether the store is usable, the worker's state, and its error for authenticated callers."""

    worker: str | None
    error: str | None
