"""The tables of DAG runs, in every database: one set of statements and one logic over a transaction port."""

import asyncio
import re
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from kron.core.dag.definition import MAX_DOCUMENT, DagDefinition
from kron.core.dag.plan import Busy, leased_to, shortened
from kron.core.dag.record import (
    AttemptOutcome,
    DagAttempt,
    DagChange,
    DagClaim,
    DagRun,
    DagRunStatus,
    DagState,
    DagSummary,
    DagTask,
    DagTaskStatus,
    LeasedTask,
)
from kron.dag_ports import DagClaimRequest, DagLease
from kron.stores.statement import FOR_EVER, statements

Row = tuple[Any, ...]
T = TypeVar("T")
# How many queued tasks one claim reads at once, and at most: tasks that wait for a limit may come first.
PAGE, MAX_PAGES = 200, 50
# The definitions that are kept, in characters; longer ones are read again.
MAX_SNAPSHOTS = 4 << 20
# Tasks of definitions with more characters are read beside the event loop.
LONG_DEFINITION = 16_384
# How many names one statement gets.
MAX_NAMES = 20
# The end of an output, of at most `:tail` characters.
TAIL = "SUBSTR(output, CASE WHEN LENGTH(output) > :tail THEN LENGTH(output) - :tail + 1 ELSE 1 END)"
# How many attempts are read at once, and how much of their outputs: of one task, and of a whole run.
MAX_ATTEMPTS, WHOLE_OUTPUT, PART_OUTPUT = 1_000, 65_536, 8_192
# Before and after each name of several users in one text; no name has them.
BEFORE, AFTER = "\n", "\r"


class Transaction(Protocol):
    """One open transaction; statements are called by name."""

    async def rows(self, name: str, values: Mapping[str, object]) -> Sequence[Row]:
        """Return all rows of a statement."""
        ...

    async def count(self, name: str, values: Mapping[str, object]) -> int:
        """Return how many rows a statement wrote."""
        ...

    async def many(self, name: str, values: Iterable[Mapping[str, object]]) -> None:
        """Execute a statement for each set of values."""
        ...


Work = Callable[[Transaction], Coroutine[Any, Any, T]]


class Database(Protocol):
    """Runs work in one transaction; an exclusive one excludes all other exclusive ones."""

    async def do(self, work: Work[T], *, exclusive: bool = False) -> T:
        """Run work, commit, and return its result."""
        ...

    async def read(self, work: Work[T]) -> T:
        """Run work that writes nothing, and return its result."""
        ...

    async def close(self) -> None:
        """Close files and connections."""
        ...


# --- rows ----------------------------------------------------------------------------------------------

_STORED = {
    "dag_run": tuple(name for name in DagRun._fields if name != "definition"),
    "dag_task": DagTask._fields,
    "dag_attempt": DagAttempt._fields,
}


def dag_statements(mark: Callable[[str], str]) -> dict[str, str]:
    """Return the statements by name; `mark` writes a named parameter as the database has it."""
    filled = {}
    for name, text in statements("common", "dag").items():
        for group, fields in _STORED.items():
            columns = ", ".join(fields)
            values = ", ".join(f":{each}" for each in fields)
            assignments = ", ".join(f"{each} = :{each}" for each in fields)
            text = text.replace(f"{{{group}.columns}}", columns).replace(f"{{{group}.values}}", values)
            text = text.replace(f"{{{group}.assignments}}", assignments)
            tails = ", ".join(TAIL if each == "output" else each for each in fields)
            text = text.replace(f"{{{group}.tails}}", tails)
        states = ", ".join("NULL" if each == "result" else each for each in DagTask._fields)
        text = text.replace("{dag_task.states}", states)
        text = text.replace("{names}", ", ".join(f":name{number}" for number in range(MAX_NAMES)))
        filled[name] = re.sub(r":(\w+)", lambda match: mark(match.group(1)), text)
    return filled


def _run_of(row: Row) -> DagRun:
    values = dict(zip(_STORED["dag_run"], row, strict=True))
    return DagRun(**values | {"status": DagRunStatus(values["status"]), "definition": ""})


def _task_of(row: Row) -> DagTask:
    task = DagTask._make(row)
    return task._replace(status=DagTaskStatus(task.status))


def _attempt_of(row: Row) -> DagAttempt:
    attempt = DagAttempt._make(row)
    return attempt._replace(outcome=None if attempt.outcome is None else AttemptOutcome(attempt.outcome))


def _names_of(names: Sequence[str]) -> Iterator[dict[str, object]]:
    """Yield the values of statements about names, several for each."""
    for first in range(0, len(names), MAX_NAMES):
        part = names[first : first + MAX_NAMES]
        yield {f"name{number}": part[min(number, len(part) - 1)] for number in range(MAX_NAMES)}


def _without(users: Collection[str]) -> dict[str, object]:
    """Return the values that leave the tasks of users out: their names, each between two marks."""
    names = "".join(f"{BEFORE}{user}{AFTER}" for user in sorted(users))
    return {"without": names, "before": BEFORE, "after": AFTER}


def _values_of(record: NamedTuple) -> dict[str, object]:
    return {name: str(value) if isinstance(value, str) else value for name, value in record._asdict().items()}


async def _update_run(transaction: Transaction, run: DagRun, revision: int) -> bool:
    """Write the state of a run with the next revision; return False where it has another one."""
    values = {**_values_of(run), "revision": revision + 1, "expected": revision}
    return await transaction.count("update_run", values) == 1


# --- the store -----------------------------------------------------------------------------------------


class DagTables:
    """Runs of DAGs in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.close = database.close
        # Definitions never change, so each is read once.
        self._snapshots: dict[str, str] = {}

    async def start(self, run: DagRun, tasks: Sequence[DagTask]) -> tuple[DagRun, bool]:
        """Insert a run and its tasks unless its key exists; return the stored run, and whether it is new."""

        async def work(transaction: Transaction) -> tuple[DagRun, bool]:
            known = await transaction.rows("run_by_key", {"run_key": run.run_key})
            if not known:
                await transaction.count(
                    "insert_snapshot", {"digest": run.digest, "definition": run.definition}
                )
                if await transaction.count("insert_run", _values_of(run)):
                    await transaction.many("insert_task", map(_values_of, tasks))
                    return run, True
                known = await transaction.rows("run_by_key", {"run_key": run.run_key})
            return _run_of(known[0]), False

        return await self._database.do(work)

    async def _defined(self, run: DagRun) -> tuple[DagRun, DagDefinition]:
        """Return a run with its definition; reading the tasks of a long one takes most of a second."""
        text = self._snapshots.get(run.digest)
        if text is None:
            values = {"digest": run.digest}
            ((text,),) = await self._database.read(lambda transaction: transaction.rows("snapshot", values))
            if sum(map(len, self._snapshots.values())) + len(text) > MAX_SNAPSHOTS:
                self._snapshots.clear()
            self._snapshots[run.digest] = text
        run = run._replace(definition=text)
        is_long = len(text) > LONG_DEFINITION
        return run, await asyncio.to_thread(lambda: run.tasks) if is_long else run.tasks

    async def run(self, run_id: str) -> DagRun | None:
        """Return a run without its definition, or None."""
        return await self._database.read(lambda transaction: self._run(transaction, run_id))

    async def _run(self, transaction: Transaction, run_id: str) -> DagRun | None:
        rows = await transaction.rows("run", {"run_id": run_id})
        return _run_of(rows[0]) if rows else None

    async def results(self, run_id: str, names: Sequence[str], *, most: int | None = None) -> dict[str, str]:
        """Return the results of tasks as JSON texts; with `most`, none after that many characters."""

        async def work(transaction: Transaction) -> dict[str, str]:
            found: dict[str, str] = {}
            for part in _names_of(names):
                found.update(await transaction.rows("results", {"run_id": run_id, **part}))
                if most is not None and sum(map(len, found.values())) > most:
                    break
            return found

        return await self._database.read(work) if names else {}

    async def statuses(self, run_ids: Sequence[str]) -> dict[str, DagRunStatus]:
        """Return the states of runs; those that do not exist are left out."""

        async def work(transaction: Transaction) -> dict[str, DagRunStatus]:
            rows = [row for names in _names_of(run_ids) for row in await transaction.rows("statuses", names)]
            return {str(run_id): DagRunStatus(status) for run_id, status in rows}

        return await self._database.read(work)

    async def failed_task(self, run_id: str) -> tuple[str, str | None] | None:
        """Return the name and the error of the first failed task of a run, or None."""
        values = {"run_id": run_id}
        rows = await self._database.read(lambda transaction: transaction.rows("failed_task", values))
        return (str(rows[0][0]), rows[0][1]) if rows else None

    async def state(self, run_id: str) -> DagState | None:
        """Return a run with its tasks, or None; of their results those of branches."""

        async def work(transaction: Transaction) -> DagState | None:
            run = await self._run(transaction, run_id)
            if run is None:
                return None
            rows = await transaction.rows("tasks", {"run_id": run_id})
            return DagState(run, {task.task_id: task for task in map(_task_of, rows)})

        state = await self._database.read(work)
        if state is None:
            return None
        run, definition = await self._defined(state.run)
        branches = [name for name, spec in definition.tasks.items() if spec.policy.branch]
        # Should they be of a later revision, nothing that is decided with them is written.
        results = await self.results(run_id, branches)
        chosen = {name: state.tasks[name]._replace(result=text) for name, text in results.items()}
        return DagState(run, {**state.tasks, **chosen})

    async def commit(self, change: DagChange) -> bool:
        """Write a change; return False where the run has another revision by now."""

        async def work(transaction: Transaction) -> bool:
            if not await _update_run(transaction, change.run, change.revision):
                return False
            await transaction.many("update_task", map(_values_of, change.tasks))
            await transaction.many("write_attempt", map(_values_of, change.attempts))
            return True

        return await self._database.do(work)

    # --- executing -----------------------------------------------------------------------------------

    async def claim(self, request: DagClaimRequest) -> list[DagClaim]:
        """Lease due tasks to a worker within every limit: first those of dead workers, then queued ones."""

        async def work(transaction: Transaction) -> list[LeasedTask]:
            latest = FOR_EVER if request.latest_lease is None else request.latest_lease
            values = {"now": request.now, "latest": latest, "limit": request.limit}
            leased: list[LeasedTask] = []
            takes_over = request.takes_over and not request.is_full
            for row in await transaction.rows("expired", values) if takes_over else ():
                await self._claim(transaction, request, _task_of(row), leased, taken_over=True)
            if len(leased) < request.limit:
                await self._claim_queued(transaction, request, leased)
            return leased

        if request.latest_lease is not None:
            await self._shorten_retries(request.now)
        leased = await self._database.do(work, exclusive=True)
        return [await self._claim_of(each) for each in leased]

    async def _claim_of(self, leased: LeasedTask) -> DagClaim:
        """Return a claim with the definition of its task and its input, read once all leases are written."""
        run, definition = await self._defined(leased.run)
        spec = definition.tasks[leased.task.task_id]
        upstream = await self.results(run.run_id, spec.depends_on, most=MAX_DOCUMENT)
        return DagClaim(run, leased.task, leased.taken_over, spec, upstream)

    async def _shorten_retries(self, now: int) -> None:
        """Let retries wait no longer than their delay: the clock was ahead when they were queued."""
        values = {"now": now, "limit": PAGE}
        rows = await self._database.read(lambda transaction: transaction.rows("late_retries", values))
        for task in map(_task_of, rows):
            run = await self.run(task.run_id)
            assert run is not None, "a task has a run"
            run, definition = await self._defined(run)
            sooner = shortened(definition.tasks[task.task_id], task, now)
            if sooner is not None:
                await self.commit(DagChange(run.revision, run, (sooner,)))

    async def _claim_queued(
        self, transaction: Transaction, request: DagClaimRequest, leased: list[LeasedTask]
    ) -> None:
        busy = Busy({str(name): int(slots) for name, slots in await transaction.rows("pools", {})})
        for run_id, dag_id, pool, number in await transaction.rows("busy", {}):
            busy.add(DagTask(run_id, "", 0, dag_id, pool, DagTaskStatus.RUNNING), number)
        after: dict[str, object] = {"due_at": -FOR_EVER, "run_id": "", "position": -1}
        for _ in range(MAX_PAGES):
            page = {"now": request.now, "limit": PAGE, **_without(request.users_without_room(leased))}
            rows = await transaction.rows("queued", {**after, **page})
            for task in map(_task_of, rows):
                if len(leased) >= request.limit:
                    return
                await self._claim(transaction, request, task, leased, busy=busy)
                after = {"due_at": task.due_at, "run_id": task.run_id, "position": task.position}
            if len(rows) < PAGE:
                return

    async def _claim(
        self,
        transaction: Transaction,
        request: DagClaimRequest,
        task: DagTask,
        leased: list[LeasedTask],
        *,
        busy: Busy | None = None,
        taken_over: bool = False,
    ) -> None:
        run = await self._run(transaction, task.run_id)
        assert run is not None, "a task has a run"
        if busy is not None and not busy.has_room(run, task):
            return
        if not taken_over and run.user_id in request.users_without_room(leased):
            return
        mine, attempt = leased_to(
            request.worker, LeasedTask(run, task, taken_over), request.now, request.lease_until
        )
        # The run first, as in a commit: a transaction that has its row decides about its tasks.
        if not await _update_run(transaction, mine.run, run.revision):
            return
        rows = await transaction.rows("task", {"run_id": task.run_id, "task_id": task.task_id})
        if list(map(_task_of, rows)) != [task]:
            # Another transaction was first; without a change the run keeps its state.
            await _update_run(transaction, run, run.revision + 1)
            return
        await transaction.count("update_task", _values_of(mine.task))
        if attempt is not None:
            await transaction.many("write_attempt", [_values_of(attempt)])
        if busy is not None:
            busy.add(task)
        leased.append(mine)

    async def renew(self, worker: str, leases: Sequence[DagLease], until: int) -> dict[DagLease, bool]:
        """Extend leases; return those the worker still has, and whether their runs are being cancelled."""

        async def work(transaction: Transaction) -> dict[DagLease, bool]:
            kept: dict[DagLease, bool] = {}
            for lease in leases:
                values = {**lease._asdict(), "worker": worker, "lease_until": until}
                if await transaction.count("renew", values):
                    ((cancel,),) = await transaction.rows("is_cancelled", {"run_id": lease.run_id})
                    kept[lease] = bool(cancel)
            return kept

        return await self._database.do(work)

    async def next_due(self, now: int) -> int | None:
        """Return when a task is due next or a lease expires; None without either."""
        rows = await self._database.read(lambda transaction: transaction.rows("next_due", {"now": now}))
        at: int | None = rows[0][0]
        return at

    # --- reading -------------------------------------------------------------------------------------

    async def runs(
        self,
        *,
        dag_id: str | None = None,
        status: str | None = None,
        before: DagRun | None = None,
        limit: int = 100,
    ) -> list[DagRun]:
        """Return runs without their definitions, latest first."""
        at, run_id = (FOR_EVER, "") if before is None else (before.created_at, before.run_id)
        values = {
            "dag_id": dag_id, "status": status, "created_at": at, "run_id": run_id, "limit": limit,
        }  # fmt: skip

        async def work(transaction: Transaction) -> list[DagRun]:
            return list(map(_run_of, await transaction.rows("runs", values)))

        return await self._database.read(work)

    async def attempts(self, run_id: str, task_id: str | None = None) -> list[DagAttempt]:
        """Return the attempts of a run, or of one of its tasks, by task and number.

        At most the latest thousand, with the ends of their outputs: a longer one of a single task.
        """
        tail = PART_OUTPUT if task_id is None else WHOLE_OUTPUT
        values = {"run_id": run_id, "task_id": task_id, "tail": tail, "limit": MAX_ATTEMPTS}
        rows = await self._database.read(lambda transaction: transaction.rows("attempts", values))
        return sorted(map(_attempt_of, rows), key=lambda each: (each.task_id, each.attempt))

    async def open_runs(self, user_id: str) -> int:
        """Return how many runs of a user have not ended."""
        values = {"user_id": user_id}
        rows = await self._database.read(lambda transaction: transaction.rows("open_runs", values))
        return int(rows[0][0])

    async def summaries(self, *, limit: int = 1_000) -> list[DagSummary]:
        """Return the DAGs that have runs or are paused, by name."""
        rows = await self._database.read(lambda transaction: transaction.rows("summaries", {"limit": limit}))
        return list(map(DagSummary._make, rows))

    async def summary(self, dag_id: str) -> DagSummary:
        """Return the number of runs of a DAG in each state."""
        rows = await self._database.read(lambda transaction: transaction.rows("summary", {"dag_id": dag_id}))
        return DagSummary(dag_id, *rows[0])

    # --- settings ------------------------------------------------------------------------------------

    async def set_paused(self, dag_id: str, *, paused: bool) -> None:
        """Pause a DAG or resume it: no task of a paused one is claimed."""
        values = {"dag_id": dag_id, "paused": int(paused)}
        await self._database.do(lambda transaction: transaction.count("set_paused", values))

    async def paused(self) -> frozenset[str]:
        """Return the DAGs that are paused."""
        rows = await self._database.read(lambda transaction: transaction.rows("paused", {}))
        return frozenset(str(name) for (name,) in rows)

    async def set_pool(self, name: str, slots: int) -> None:
        """Set how many tasks of a pool execute at once."""
        values = {"name": name, "slots": slots}
        await self._database.do(lambda transaction: transaction.count("set_pool", values))

    async def pools(self) -> dict[str, int]:
        """Return the slots of each pool."""
        rows = await self._database.read(lambda transaction: transaction.rows("pools", {}))
        return dict(rows)
