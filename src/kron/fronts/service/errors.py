"""Errors of the service in SPEC 3's words, each with a stable code."""

from collections.abc import Sequence

from kron.core.errors import ConflictError, InputError, Problem, escaped

# How many wrong lines a message lists.
MAX_LINES = 100


class InvalidScheduleError(InputError):
    """A schedule is invalid in one or more fields, each with its path."""

    code = "invalid_schedule"

    def __init__(self, *, schedule_id: object, problems: Sequence[Problem]) -> None:
        name = f'schedule "{escaped(schedule_id)}"' if schedule_id else "schedule"
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
    """Some lines of a batch are invalid, each with its number; the batch was not stored.

    `count` is how many are invalid, if `errors` has only some of them.
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
        """Return one line of text for each invalid line, at most MAX_LINES."""
        listed = [f"line {line}: {error}" for line, error in self.errors[:MAX_LINES]]
        more = self.count - len(listed)
        further = [f"and {more} more invalid lines"] if more else []
        if self.stored:
            further.append(
                f"the {self.stored} schedules before these lines are stored; the request may be repeated"
            )
        return [*listed, *further]


class UnknownScheduleError(InputError):
    """A schedule does not exist, or was deleted."""

    code = "unknown_schedule"

    def __init__(self, *, schedule_id: str) -> None:
        super().__init__(f'There is no schedule "{schedule_id}"', schedule_id=schedule_id)


class UnknownWorkerError(InputError):
    """A worker holds no lease and is not drained."""

    code = "unknown_worker"

    def __init__(self, *, worker: str) -> None:
        super().__init__(f'There is no worker "{worker}": `kron workers` lists them', worker=worker)


class ChangedVersionError(ConflictError):
    """A version of a workflow exists with another content."""

    code = "version_exists"

    def __init__(self, *, workflow_id: str, version: int) -> None:
        super().__init__(
            f'Version {version} of "{workflow_id}" exists and is immutable: deploy a new version',
            workflow_id=workflow_id,
            version=version,
        )


class LaunchFailedError(ConflictError):
    """The executor did not accept a run."""

    code = "launch_failed"


class NoRunnerError(LaunchFailedError):
    """A workflow cannot be started because no executor is configured."""

    code = "no_executor"


class ChangedError(ConflictError):
    """A schedule is not in the state that the caller expects."""

    code = "schedule_changed"

    def __init__(self, *, schedule_id: str, etag: str | None) -> None:
        state = "does not exist" if etag is None else "has changed"
        super().__init__(
            f'The schedule "{schedule_id}" {state}: read it again', schedule_id=schedule_id, etag=etag
        )
