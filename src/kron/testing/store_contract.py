"""The contract of every store.

A custom store is tested by a subclass that supplies `store`::

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def store(self): ...
"""

from kron.testing.contract.engine import OwnershipContract, SettlementContract, WakeContract
from kron.testing.contract.history import ClockContract, IncidentContract, NoticeContract
from kron.testing.contract.pruning import PruningContract
from kron.testing.contract.read import AuditContract, HistoryContract, ListingContract, TallyContract
from kron.testing.contract.registry import RecordContract, RegistrationContract
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
    ClockContract,
    IncidentContract,
    HistoryContract,
    PruningContract,
    ListingContract,
    TallyContract,
    OwnershipContract,
    AuditContract,
    NoticeContract,
):
    """The behaviour the engine relies on; a subclass supplies the fixture `store`."""
