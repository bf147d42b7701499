"""The contract of every store.

A custom store is tested by a subclass that supplies `store`::

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def store(self): ...
"""

from kron.testing.contract.audit import AuditContract
from kron.testing.contract.history import HistoryContract
from kron.testing.contract.listing import ListingContract
from kron.testing.contract.ownership import OwnershipContract
from kron.testing.contract.pruning import PruningContract
from kron.testing.contract.record import RecordContract
from kron.testing.contract.registration import RegistrationContract
from kron.testing.contract.sample import (
    CLEAN,
    DEFINITION,
    ELSEWHERE,
    MINUTE,
    NOON,
    NOW,
    SPACE,
    a_change,
    a_job,
    a_range,
    a_run,
    an_end,
    keys_of,
    names_due,
    plain,
    refused,
    stored,
    written,
)
from kron.testing.contract.settlement import SettlementContract
from kron.testing.contract.wake import WakeContract

__all__ = [
    "CLEAN",
    "DEFINITION",
    "ELSEWHERE",
    "MINUTE",
    "NOON",
    "NOW",
    "SPACE",
    "StoreContract",
    "a_change",
    "a_job",
    "a_range",
    "a_run",
    "an_end",
    "keys_of",
    "names_due",
    "plain",
    "refused",
    "stored",
    "written",
]


class StoreContract(
    RecordContract,
    RegistrationContract,
    WakeContract,
    SettlementContract,
    HistoryContract,
    PruningContract,
    ListingContract,
    OwnershipContract,
    AuditContract,
):
    """The behaviour the engine relies on; a subclass supplies the fixture `store`."""
