"""The meters of a store and of launchers."""

from kron.clocks.system import SystemClock
from kron.ports import Store
from kron.stores.sqlite.store import SqliteStore
from kron.telemetry.meters import StoreMeter
from kron.testing.faulty_store import CALLS


async def test_every_verb_of_a_store_is_measured() -> None:
    async def seen(_: object) -> None: ...

    store: Store = StoreMeter(SqliteStore(), SystemClock(), found=print, written=print, seen=seen)
    assert isinstance(store, StoreMeter)
    assert store.latency.keys() == store.errors.keys() == CALLS - {"close"}
    await store.namespaces()
    assert store.latency["namespaces"].count == 1
    await store.close()
