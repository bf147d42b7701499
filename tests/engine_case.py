"""The job of most planning tests, every minute from noon on, and helpers that read its records."""

from kron.core.cron.schedule import Schedule
from kron.core.job.job import Job
from tests.engine_world import World

NOON = 1_767_268_800
MINUTE = 60_000
EVERY_MINUTE = Job(identity="world/job", schedule=Schedule("* * * * *"))


def nth(number: int) -> int:
    """Return the nominal time of 12:01, 12:02 and so on."""
    return NOON + 60 * number


def seen(world: World) -> list[str]:
    """Return every period's status and reason, oldest first."""
    return [" ".join(record) for _, record in sorted(world.records().items())]


def started(world: World) -> list[int]:
    """Return the periods that were started, in order of their starts."""
    return [(nominal - NOON) // 60 for _, nominal, _ in world.starts]
