"""The optimistic write loop over runs of DAGs: read, decide, commit, again if another write was faster."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from kron.core.dag.record import DagChange, DagState
from kron.dag_ports import DagStore

Decide: TypeAlias = Callable[[DagState], DagChange | None]


class RunWrite(NamedTuple):
    """The state a decision was made in, None if there is no such run, and the change that was committed."""

    state: DagState | None
    change: DagChange | None


async def write_run(store: DagStore, run_id: str, decide: Decide, *, max_tries: int) -> RunWrite | None:
    """Commit a decision about the present state of a run; None if the run changed during every try."""
    for _ in range(max_tries):
        state = await store.state(run_id)
        change = None if state is None else decide(state)
        if change is None or await store.commit(change):
            return RunWrite(state, change)
    return None
