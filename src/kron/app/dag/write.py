"""The optimistic write loop over runs of DAGs: read, decide, commit, again if another write was faster."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, TypeAlias, TypeVar, TypeVarTuple

from kron.core.dag.record import DagChange, DagState
from kron.dag_ports import DagStore

Args = TypeVarTuple("Args")
Value = TypeVar("Value")
# From which length of a definition on work about it is done beside the event loop; and what a task counts.
LONG, TASK = 16_384, 100
Decide: TypeAlias = Callable[[DagState], DagChange | None]


class RunWrite(NamedTuple):
    """The state a decision was made in, None if there is no such run, and the change that was committed."""

    state: DagState | None
    change: DagChange | None


async def beside(length: int, work: Callable[[*Args], Value], *args: *Args) -> Value:
    """Do work about a definition of a length; of a long one it takes most of a second, so in a thread."""
    return await asyncio.to_thread(work, *args) if length > LONG else work(*args)


async def write_run(store: DagStore, run_id: str, decide: Decide, *, max_tries: int) -> RunWrite | None:
    """Commit a decision about the present state of a run; None if the run changed during every try."""
    for _ in range(max_tries):
        state = await store.state(run_id)
        change = None if state is None else await beside(TASK * len(state.tasks), decide, state)
        if change is None or await store.commit(change):
            return RunWrite(state, change)
    return None
