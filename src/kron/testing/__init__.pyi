"""The names of `__init__.py`, which loads them lazily, with their types."""

from kron.testing.clock import SimulatedClock as SimulatedClock
from kron.testing.crash import kill as kill
from kron.testing.crash import trace as trace
from kron.testing.faulty_store import Chance as Chance
from kron.testing.faulty_store import Fault as Fault
from kron.testing.faulty_store import FaultyStore as FaultyStore
from kron.testing.faulty_store import Injected as Injected
from kron.testing.launcher import ScriptedLauncher as ScriptedLauncher
from kron.testing.launcher import Step as Step
from kron.testing.simulator import simulate as simulate
from kron.testing.store_contract import StoreContract as StoreContract

__all__: list[str]
from kron.testing.virtual_time import VirtualTime as VirtualTime
