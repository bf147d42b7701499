"""What the service refuses: errors in the words of SPEC 3, each with a stable code."""

from collections.abc import Sequence

from kron.core.errors import ConflictError, InputError, Problem

# How many wrong lines are written out.
MAX_LINES = 100


class InvalidScheduleError(InputError):
    """A schedule is wrong in one or more fields, each with its path."""

    code = "invalid_schedule"

    def __init__(self, *, schedule_id: object, problems: Sequence[Problem]) -> None:
        name = f'schedule "{schedule_id}"' if schedule_id else "schedule"
        super().__init__(
            f"Invalid {name}: {'; '.join(map(str, problems))}",
            schedule_id=schedule_id,
            problems=tuple(problems),
        )
        self.problems = tuple(problems)

    def lines(self) -> list[str]:
        """Return one line for each problem."""
        return [str(problem) for problem in self.problems]


class InvalidLinesError(InputError):
    """Some lines of a batch are wrong, each with its number; nothing of the batch was written.

    `count` says how many are wrong, where not all of them are given.
    """

    code = "invalid_lines"

    def __init__(
        self, *, errors: Sequence[tuple[int, InputError]], stored: int, count: int | None = None
    ) -> None:
        self.errors = tuple(errors)
        self.stored = stored
        self.count = len(errors) if count is None else count
        super().__init__("; ".join(self.lines()), lines=[line for line, _ in errors], stored=stored)

    def lines(self) -> list[str]:
        """Return one line of text for each wrong line, as many as somebody may want to read."""
        said = [f"line {line}: {error}" for line, error in self.errors[:MAX_LINES]]
        more = self.count - len(said)
        further = [f"and {more} wrong lines more"] if more else []
        if self.stored:
            further.append(f"{self.stored} schedules before these lines are stored; doing it again is safe")
        return [*said, *further]


class UnknownScheduleError(InputError):
    """A schedule is asked for that does not exist, or no longer."""

    code = "unknown_schedule"

    def __init__(self, *, schedule_id: str) -> None:
        super().__init__(f'There is no schedule "{schedule_id}"', schedule_id=schedule_id)


class ChangedVersionError(ConflictError):
    """A version of a workflow is to be kept that is there already, and different."""

    code = "version_exists"

    def __init__(self, *, workflow_id: str, version: int) -> None:
        super().__init__(
            f'Version {version} of "{workflow_id}" is there already and never changes: deploy a new version',
            workflow_id=workflow_id,
            version=version,
        )


class LaunchFailedError(ConflictError):
    """The executor did not take a run."""

    code = "launch_failed"


class NoRunnerError(LaunchFailedError):
    """Workflows are to be started where nobody runs them."""

    code = "no_executor"


class ChangedError(ConflictError):
    """A schedule is not, or no longer, what the caller takes it for."""

    code = "schedule_changed"

    def __init__(self, *, schedule_id: str, etag: str | None) -> None:
        state = "does not exist yet" if etag is None else "is not what you have seen"
        super().__init__(
            f'The schedule "{schedule_id}" {state}: read it again', schedule_id=schedule_id, etag=etag
        )
