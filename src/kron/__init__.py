"""Kron decides when work runs, records every decision, and can prove it was right.

The public names are listed here and loaded on first access, so that `import kron`
stays light (PEP 562).
"""

from importlib import import_module

# The module of each public name; `dir(kron)` and `from kron import ...` follow this table.
_HOME = {
    "Schedule": "kron.core.cron.schedule",
    "next_times": "kron.core.cron.schedule",
    "Job": "kron.core.job.job",
    "Policy": "kron.core.job.policy",
    "Retention": "kron.core.job.profile",
    "Overlap": "kron.core.job.policy",
    "Window": "kron.core.job.window",
    "WindowMode": "kron.core.job.window",
    "Uniform": "kron.core.job.distribution",
    "SkewEarly": "kron.core.job.distribution",
    "SkewLate": "kron.core.job.distribution",
    "Normal": "kron.core.job.distribution",
    "Exponential": "kron.core.job.distribution",
    "Mu": "kron.core.job.distribution",
    "Dir": "kron.core.job.distribution",
    "Constraints": "kron.core.job.constraint",
    "ConstraintRule": "kron.core.job.constraint",
    "SeedStrategy": "kron.core.job.seed",
    "Decision": "kron.core.job.decision",
    "decide": "kron.core.job.decision",
    "upcoming": "kron.core.job.decision",
    "judge": "kron.core.job.verdict",
    "Wait": "kron.core.job.verdict",
    "Start": "kron.core.job.verdict",
    "Settle": "kron.core.job.verdict",
    "Outcome": "kron.core.job.outcome",
    "Reason": "kron.core.job.outcome",
    "Scheduler": "kron.fronts.embed.scheduler",
    "TaskStatus": "kron.fronts.embed.task_status",
    "TaskState": "kron.core.task.task",
    "Event": "kron.fronts.embed.event",
    "Runner": "kron.fronts.embed.runner",
    "Run": "kron.fronts.embed.answer",
    "JobStatus": "kron.fronts.embed.answer",
    "Why": "kron.fronts.embed.answer",
    "WhyFact": "kron.fronts.embed.answer",
    "cancel_requested": "kron.fronts.embed.thread_call",
    "Catchup": "kron.core.job.policy",
    "OnOrphan": "kron.core.job.policy",
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
    "RegistrationsNotArrayError": "kron.core.task.errors",
    "RegistrationShapeError": "kron.core.task.errors",
    "InvalidRegistrationError": "kron.core.task.errors",
    "ScheduleDuplicateTaskError": "kron.core.task.errors",
    "CronExpressionInvalidError": "kron.core.task.errors",
    "NegativeRetryDelayError": "kron.core.task.errors",
    "SchedulerAlreadyActiveError": "kron.core.task.errors",
    "SchedulerStopInCallbackError": "kron.core.task.errors",
    "SchedulerFailedError": "kron.core.task.errors",
    "TaskTryDeserializeError": "kron.core.task.errors",
    "TaskMissingFieldError": "kron.core.task.errors",
    "TaskInvalidTypeError": "kron.core.task.errors",
    "TaskInvalidValueError": "kron.core.task.errors",
    "TaskInvalidStructureError": "kron.core.task.errors",
}
_MODULES = ("cron", "errors")

__all__ = [*_MODULES, *_HOME]  # noqa: PLE0604


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
