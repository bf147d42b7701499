"""Verification: whether a decision's certificate follows from its inputs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache

from kron.core.cron.schedule import Schedule
from kron.core.errors import InputError, InvalidJobError, Problem
from kron.core.fields import FieldReader, choice_of, invalid_value, parse_text
from kron.core.job.constraint import CONSTRAINTS, read_constraints
from kron.core.job.decision import FORMAT, decide
from kron.core.job.distribution import read_distribution
from kron.core.job.job import Job, check_identity
from kron.core.job.seed import SeedStrategy
from kron.core.job.window import WINDOW, read_window

# The inputs of a decision besides its nominal time; the rest of a certificate follows from them.
JOB_FIELDS = (
    "identity", "salt", "window", "timezone", "distribution", "seed_strategy", "constraints",
)  # fmt: skip
FOLLOWING = (
    "period_id", "nominal_time", "window_start", "window_end", "chosen_time", "period_key", "seed_hash",
    "attempts", "constraints_applied", "unschedulable",
)  # fmt: skip
FIELDS = ("kron_decision", *JOB_FIELDS, *FOLLOWING, "tzdata_version")

# A certificate has no schedule, and a decision does not depend on it. Of all schedules this one allows the
# longest windows, so every valid job is valid with it.
ANY_SCHEDULE = "0 0 * * *"
# Logs repeat the same jobs; this many are cached.
MAX_KEPT = 4096
# Characters shown of a value; a seed's hash is shown in full.
MAX_SHOWN = 80


class VerifyResult(StrEnum):
    """The result of a verification."""

    OK = "ok"
    DIFFERS = "does_not_follow"
    NO_DECISION = "not_a_decision"

    def __str__(self) -> str:
        return self.value.replace("_", " ")


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """A field that does not follow from the inputs."""

    field: str
    recorded: object
    recomputed: object

    def __str__(self) -> str:
        return f"{self.field}: recorded {_shown(self.recorded)}, recomputed {_shown(self.recomputed)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """One certificate recomputed and compared, or rejected with its problems."""

    recomputed: Mapping[str, object] | None = None
    differences: tuple[FieldDifference, ...] = ()
    problems: tuple[Problem, ...] = ()
    note: str | None = None

    @property
    def finding(self) -> VerifyResult:
        """Return the result as one value."""
        if self.problems:
            return VerifyResult.NO_DECISION
        return VerifyResult.DIFFERS if self.differences else VerifyResult.OK


def verify(certificate: object) -> Verification:
    """Recompute a decision from the inputs in its certificate, and compare field by field."""
    if not isinstance(certificate, Mapping):
        return Verification(problems=(Problem("decision", certificate, "must be an object"),))
    problems = _form_problems(certificate)
    if problems:
        return Verification(problems=tuple(problems))
    try:
        job = _job_of(json.dumps([certificate[name] for name in JOB_FIELDS]))
        recomputed = decide(job, _parse_instant(certificate["nominal_time"])).to_dict()
    except InvalidJobError as error:
        return Verification(problems=error.problems)
    except InputError as error:
        nominal_time = certificate["nominal_time"]
        reason = str(error.details.get("reason", error))
        return Verification(problems=(Problem("nominal_time", nominal_time, reason),))
    except (TypeError, ValueError, RecursionError):
        return Verification(problems=(Problem("decision", None, "must be plain JSON values"),))
    differences = [
        FieldDifference(name, certificate[name], recomputed[name])
        for name in FOLLOWING
        if not _same(certificate[name], recomputed[name])
    ]
    note = _tzdata_note(
        certificate["tzdata_version"], recomputed["tzdata_version"], differs=bool(differences)
    )
    return Verification(recomputed=recomputed, differences=tuple(differences), note=note)


def _form_problems(certificate: Mapping[object, object]) -> list[Problem]:
    """Return why a document is not a certificate of this format, if it is not."""
    if "kron_decision" not in certificate:
        return [Problem("kron_decision", None, "is missing; every decision has its format version")]
    version = certificate["kron_decision"]
    if not _same(version, FORMAT):
        return [Problem("kron_decision", version, f"unknown format; this Kron knows {FORMAT}")]
    unknown = [Problem(str(name), None, "unknown field") for name in certificate if name not in FIELDS]
    missing = [Problem(name, None, "is missing") for name in FIELDS if name not in certificate]
    version = certificate.get("tzdata_version")
    if not isinstance(version, str | None):
        missing.append(Problem("tzdata_version", version, "must be a string or null"))
    return unknown + missing


@lru_cache(maxsize=MAX_KEPT)
def _job_of(text: str) -> Job:
    """Return a job with the certificate's inputs, or raise InvalidJobError with every problem."""
    values = dict(zip(JOB_FIELDS, json.loads(text), strict=True))
    problems: list[Problem] = []
    fields = FieldReader(values, "", problems, known=JOB_FIELDS)
    window = read_window(fields.sub("window", WINDOW.words))
    strategies = {strategy.value: strategy for strategy in SeedStrategy}
    identity = fields.read("identity", check_identity, "unknown")
    try:
        job = Job(
            identity=identity,
            salt=fields.read("salt", parse_text, ""),
            schedule=fields.read("timezone", _parse_zone, Schedule(ANY_SCHEDULE)),
            window=window,
            distribution=read_distribution(fields, window.mode),
            seed_strategy=fields.read("seed_strategy", choice_of(strategies), SeedStrategy.STABLE),
            constraints=read_constraints(fields.sub("constraints", CONSTRAINTS.words), {}),
        )
    except InvalidJobError as error:
        raise InvalidJobError(identity=identity, problems=[*problems, *error.problems]) from None
    if problems:
        raise InvalidJobError(identity=identity, problems=problems)
    return job


def _parse_zone(value: object) -> Schedule:
    return Schedule(ANY_SCHEDULE, parse_text(value))


def _parse_instant(value: object) -> datetime:
    try:
        return datetime.fromisoformat(parse_text(value))
    except ValueError as cause:
        raise invalid_value(value, "must be a time such as 2026-03-29T01:00:00Z") from cause


def _same(recorded: object, recomputed: object) -> bool:
    """Return whether two JSON values are the same; true is not 1, and 1.0 is not 1."""
    return type(recorded) is type(recomputed) and recorded == recomputed


def _tzdata_note(recorded: object, here: object, *, differs: bool) -> str | None:
    if recorded == here:
        return None
    was, is_ = (version or "an unknown one" for version in (recorded, here))
    note = f"decided with time zone database {was}, verified with {is_}"
    return f"{note}, which may be why they differ" if differs else note


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
