"""Kron decides when work runs, records every decision, and can prove it was right.

The public names are listed here and loaded when they are first asked for, so that `import kron`
stays light (PEP 562).
"""

from importlib import import_module

# Where each public name lives; `dir(kron)` and `from kron import ...` follow this table.
_HOME = {
    "Schedule": "kron.core.schedule",
    "next_times": "kron.core.schedule",
    "Job": "kron.core.job",
    "Policy": "kron.core.policy",
    "Overlap": "kron.core.policy",
    "Decision": "kron.core.decision",
    "decide": "kron.core.decision",
    "upcoming": "kron.core.decision",
    "judge": "kron.core.verdict",
    "Wait": "kron.core.verdict",
    "Start": "kron.core.verdict",
    "Settle": "kron.core.verdict",
    "Outcome": "kron.core.outcome",
    "Reason": "kron.core.outcome",
    "Scheduler": "kron.fronts.embed.scheduler",
    "TaskStatus": "kron.fronts.embed.book",
    "TaskState": "kron.core.task",
    "Event": "kron.fronts.embed.event",
    "Runner": "kron.fronts.embed.runner",
    "Run": "kron.fronts.embed.run",
    "Catchup": "kron.core.policy",
    "OnOrphan": "kron.core.policy",
    "Problem": "kron.core.errors",
    "KronError": "kron.core.errors",
    "InputError": "kron.core.errors",
    "ConflictError": "kron.core.errors",
    "StoreError": "kron.core.errors",
    "InvalidCronExpressionError": "kron.core.errors",
    "FieldParseError": "kron.core.errors",
    "CronCalculationError": "kron.core.errors",
    "UnknownTimezoneError": "kron.core.errors",
    "InvalidOptionError": "kron.core.errors",
    "InvalidInstantError": "kron.core.errors",
    "InvalidJobError": "kron.core.errors",
    "InvalidJobFileError": "kron.core.errors",
    "UnreadableFileError": "kron.core.errors",
    "InvalidTraceError": "kron.core.errors",
    "NoCandidateError": "kron.core.errors",
    "OwnedError": "kron.core.errors",
    "RegistrationsNotArrayError": "kron.core.task_error",
    "RegistrationShapeError": "kron.core.task_error",
    "InvalidRegistrationError": "kron.core.task_error",
    "ScheduleDuplicateTaskError": "kron.core.task_error",
    "CronExpressionInvalidError": "kron.core.task_error",
    "NegativeRetryDelayError": "kron.core.task_error",
    "SchedulerAlreadyActiveError": "kron.core.task_error",
    "SchedulerStopInCallbackError": "kron.core.task_error",
    "SchedulerFailedError": "kron.core.task_error",
    "TaskTryDeserializeError": "kron.core.task_error",
    "TaskMissingFieldError": "kron.core.task_error",
    "TaskInvalidTypeError": "kron.core.task_error",
    "TaskInvalidValueError": "kron.core.task_error",
    "TaskInvalidStructureError": "kron.core.task_error",
}
_MODULES = ("cron",)

__all__ = ["cron", *_HOME]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"kron.{name}")
    if name in _HOME:
        value: object = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'kron' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
