"""The public names with their types: what `__init__.py` loads when it is asked."""

from kron import cron as cron
from kron.core.decision import Decision as Decision
from kron.core.decision import decide as decide
from kron.core.decision import upcoming as upcoming
from kron.core.errors import ConflictError as ConflictError
from kron.core.errors import CronCalculationError as CronCalculationError
from kron.core.errors import FieldParseError as FieldParseError
from kron.core.errors import InputError as InputError
from kron.core.errors import InvalidCronExpressionError as InvalidCronExpressionError
from kron.core.errors import InvalidInstantError as InvalidInstantError
from kron.core.errors import InvalidJobError as InvalidJobError
from kron.core.errors import InvalidJobFileError as InvalidJobFileError
from kron.core.errors import InvalidOptionError as InvalidOptionError
from kron.core.errors import InvalidTraceError as InvalidTraceError
from kron.core.errors import KronError as KronError
from kron.core.errors import NoCandidateError as NoCandidateError
from kron.core.errors import Problem as Problem
from kron.core.errors import StoreError as StoreError
from kron.core.errors import UnknownTimezoneError as UnknownTimezoneError
from kron.core.errors import UnreadableFileError as UnreadableFileError
from kron.core.job import Job as Job
from kron.core.outcome import Outcome as Outcome
from kron.core.outcome import Reason as Reason
from kron.core.policy import Overlap as Overlap
from kron.core.policy import Policy as Policy
from kron.core.schedule import Schedule as Schedule
from kron.core.schedule import next_times as next_times
from kron.core.verdict import Settle as Settle
from kron.core.verdict import Start as Start
from kron.core.verdict import Wait as Wait
from kron.core.verdict import judge as judge

__all__: list[str]
