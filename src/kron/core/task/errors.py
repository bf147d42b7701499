"""Every error of the declarative scheduler, with the names, messages and details of SPEC 1: Error Model.

InputError
├── RegistrationsNotArrayError
├── RegistrationShapeError
├── InvalidRegistrationError
├── ScheduleDuplicateTaskError
├── CronExpressionInvalidError
└── NegativeRetryDelayError
ConflictError
├── SchedulerAlreadyActiveError
└── SchedulerStopInCallbackError
StoreError
├── SchedulerFailedError
└── TaskTryDeserializeError
    ├── TaskMissingFieldError
    ├── TaskInvalidTypeError
    ├── TaskInvalidValueError
    └── TaskInvalidStructureError

`details` has the keys of the specification; attributes have the same in Python's spelling, and
`registration_index` identifies the registration.
"""

from typing import ClassVar

from kron.core.errors import ConflictError, InputError, InvalidCronExpressionError, StoreError

SHAPE = "Invalid registration shape: expected [string, string, function, Duration]"


class RegistrationsNotArrayError(InputError):
    """The registrations are neither a list nor a tuple."""

    code = "registrations_not_array"

    def __init__(self) -> None:
        super().__init__("Registrations must be an array")


class RegistrationShapeError(InputError):
    """A registration does not have four parts, or has one of the wrong type, given in `reason`."""

    code = "registration_shape"

    def __init__(self, *, registration_index: int, received: object, reason: str) -> None:
        super().__init__(SHAPE, registrationIndex=registration_index, received=received)
        self.registration_index = registration_index
        self.received = received
        self.reason = reason
        self.add_note(f"registration {registration_index}: {reason}")


class InvalidRegistrationError(InputError):
    """A registration has the right shape and an invalid part."""

    code = "invalid_registration"

    def __init__(self, *, registration_index: int, field: str, value: object, reason: str) -> None:
        message = f"Invalid registration {registration_index}: {field} {reason}"
        super().__init__(message, field=field, value=value, reason=reason)
        self.registration_index = registration_index
        self.field = field
        self.value = value
        self.reason = reason


class ScheduleDuplicateTaskError(InputError):
    """Two registrations have the same name."""

    code = "schedule_duplicate_task"

    def __init__(self, *, registration_index: int, task_name: str) -> None:
        super().__init__(f'Task with name "{task_name}" is already scheduled', taskName=task_name)
        self.registration_index = registration_index
        self.task_name = task_name


class CronExpressionInvalidError(InputError):
    """A registration's cron expression is not POSIX; `details["cause"]` is the parser's error.

    `is_extended` says that the expression is valid in the extended dialect, which a note then names.
    """

    code = "cron_expression_invalid"

    def __init__(
        self, *, registration_index: int, cause: InvalidCronExpressionError, is_extended: bool = False
    ) -> None:
        super().__init__(
            str(cause), expression=cause.expression, field=cause.field, reason=cause.reason, cause=cause
        )
        self.registration_index = registration_index
        self.expression = cause.expression
        self.field = cause.field
        self.reason = cause.reason
        if is_extended:
            self.add_note(
                f'kron.Runner accepts "{cause.expression}" as written; kron.Scheduler accepts POSIX cron only'
            )


class NegativeRetryDelayError(InputError):
    """A retry delay is below zero."""

    code = "negative_retry_delay"

    def __init__(self, *, registration_index: int, retry_delay_ms: float) -> None:
        super().__init__("Retry delay must be non-negative", retryDelayMs=retry_delay_ms)
        self.registration_index = registration_index
        self.retry_delay_ms = retry_delay_ms


class SchedulerAlreadyActiveError(ConflictError):
    """`initialize` was called while the scheduler was initializing or running."""

    code = "scheduler_already_active"

    def __init__(self, *, current_state: str) -> None:
        message = f"Cannot initialize scheduler: scheduler is already {current_state}"
        super().__init__(message, currentState=current_state)
        self.current_state = current_state


class SchedulerStopInCallbackError(ConflictError):
    """A callback awaits `stop`, which waits for the callback: a deadlock."""

    code = "scheduler_stop_in_callback"

    def __init__(self) -> None:
        super().__init__(
            "Cannot stop scheduler: a callback cannot wait for stop(), which waits for the callback; "
            "use asyncio.create_task(scheduler.stop())"
        )


class SchedulerFailedError(StoreError):
    """An unexpected error inside `initialize` or `stop`; `details["cause"]` is the error itself."""

    code = "scheduler_failed"

    def __init__(self, *, operation: str, cause: BaseException) -> None:
        super().__init__(
            f"Cannot {operation} scheduler: {type(cause).__name__}: {cause}", operation=operation, cause=cause
        )
        self.operation = operation


class TaskTryDeserializeError(StoreError):
    """The stored state of a task cannot be read."""

    code: ClassVar[str] = "task_unreadable"

    def __init__(self, *, field: str, value: object, expected_type: str) -> None:
        message = f"Cannot read field '{field}': expected {expected_type}"
        super().__init__(message, field=field, value=value, expectedType=expected_type)
        self.field = field


class TaskMissingFieldError(TaskTryDeserializeError):
    """A stored task lacks a field."""

    code = "task_missing_field"

    def __init__(self, *, field: str) -> None:
        StoreError.__init__(self, f"Missing required field: {field}", field=field)
        self.field = field


class TaskInvalidTypeError(TaskTryDeserializeError):
    """A field of a stored task has the wrong type."""

    code = "task_invalid_type"

    def __init__(self, *, field: str, value: object, expected_type: str) -> None:
        actual = type(value).__name__
        StoreError.__init__(
            self,
            f"Invalid type for field '{field}': expected {expected_type}, got {actual}",
            field=field,
            value=value,
            expectedType=expected_type,
            actualType=actual,
        )
        self.field = field


class TaskInvalidValueError(TaskTryDeserializeError):
    """A field of a stored task has an impossible value."""

    code = "task_invalid_value"

    def __init__(self, *, field: str, value: object, reason: str) -> None:
        message = f"Invalid value for field '{field}': {reason}"
        StoreError.__init__(self, message, field=field, value=value, reason=reason)
        self.field = field
        self.reason = reason


class TaskInvalidStructureError(TaskTryDeserializeError):
    """The stored state of a task does not have the structure of a task."""

    code = "task_invalid_structure"

    def __init__(self, *, value: object, reason: str) -> None:
        StoreError.__init__(self, f"Invalid task structure: {reason}", value=value)
        self.reason = reason
