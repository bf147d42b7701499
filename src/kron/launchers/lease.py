"""Holding: nothing is begun under a lease that has ended, however long ago it was decided."""

from kron.core.plan.report import LeaseStatus
from kron.launchers.backoff import pause
from kron.ports import Clock, Launch

# How long a launch whose lease may have ended waits before it asks again; renewing takes longer than that.
LAPSED_S = 0.25


def is_lost(launch: Launch) -> bool:
    """Say whether somebody else looks after an execution by now, or has done so since."""
    return launch.lease_status is not None and launch.lease_status() is LeaseStatus.LOST


async def may_begin(clock: Clock, launch: Launch) -> bool:
    """Return at once while the lease holds, else when it is renewed; False where it was lost."""
    if launch.lease_status is None:
        return True
    # A lease is renewed, or lost when somebody else has it or its owner ends.
    while (hold := launch.lease_status()) is LeaseStatus.LAPSED:
        await pause(clock, LAPSED_S)
    return hold is LeaseStatus.HELD
