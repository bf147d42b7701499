"""Counterfactuals: what would have become of a period under another definition, from the recorded inputs."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from kron.core.errors import InvalidJobError, InvalidOptionError, Problem
from kron.core.job.job import Job, canonical
from kron.core.job.outcome import Outcome, Reason
from kron.core.plan.compiled import compiled_job
from kron.core.plan.incident import ENGINE, covers, detail_of
from kron.core.plan.pause import BY_HAND
from kron.core.plan.period_history import PeriodHistory
from kron.core.plan.record import (
    AttemptRecord,
    ClockEnding,
    ClockEvent,
    ClockRecord,
    EpochRecord,
    IncidentKind,
    IncidentRecord,
    JobRecord,
    Result,
    RunKind,
    RunRecord,
    RunStatus,
    present_definition,
)
from kron.core.plan.replay import (
    Execution,
    Input,
    InputKind,
    Recording,
    Replayed,
    execution_of,
    replay,
)
from kron.core.plan.report import Traits
from kron.core.plan.why import Explanation, why
from kron.core.shard import shard_of
from kron.core.time.duration import format_duration, parse_duration
from kron.core.time.instant import MILLISECOND, EpochSeconds, rfc3339
from kron.core.wording import counted

# Values that may be written without JSON: a deadline or a retry delay of `none` is no deadline, no retry.
NONE_FIELDS = ("deadline", "retry_delay", "run_timeout", "pause_after_failures")


class WhatIf(NamedTuple):
    """A changed definition: fields in any of their words, and the assumed duration of runs, if given."""

    fields: Mapping[str, object]
    duration: int | None = None

    def applied(self, job: Job) -> Job:
        """Return a job with these fields, or raise InvalidOptionError."""
        problems: list[Problem] = []
        changes, document = canonical(self.fields, problems).document, job.to_dict()
        for name, value in changes.items():
            own = document.get(str(name))
            is_part = isinstance(own, Mapping) and isinstance(value, Mapping)
            document[str(name)] = {**own, **value} if is_part else value  # type: ignore[dict-item]
        try:
            return Job.from_dict(document)
        except InvalidJobError as error:
            reasons = "; ".join(f"{problem.path} {problem.reason}" for problem in error.problems)
            given = " ".join(f"{name}={value}" for name, value in self.fields.items())
            raise InvalidOptionError(option="if", value=given, reason=reasons) from error


def what_if(pairs: Sequence[str]) -> WhatIf:
    """Read `field=value` texts; a value is JSON or plain text, and `duration` is that of unrecorded runs."""
    fields: dict[str, object] = {}
    duration = None
    for pair in pairs:
        name, sign, text = pair.partition("=")
        if not sign or not name:
            raise InvalidOptionError(
                option="if", value=pair, reason="write a field and its value: deadline=10m"
            )
        if name == "duration":
            duration = parse_duration(text) // MILLISECOND
        else:
            fields[name] = None if name in NONE_FIELDS and text == "none" else _value_of(text)
    return WhatIf(fields, duration)


def _value_of(text: str) -> object:
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    return value


class Records(NamedTuple):
    """The stored records of a job that a replay needs; `is_whole` says that its runs are all of them."""

    job: JobRecord
    epochs: Sequence[EpochRecord]
    runs: Sequence[RunRecord]
    attempts: Sequence[AttemptRecord]
    incidents: Sequence[IncidentRecord]
    excursions: Sequence[ClockRecord]
    traits: Mapping[str, Traits]
    is_whole: bool = True


class Counterfactual(NamedTuple):
    """What would have happened to a period, and what had to be assumed beyond the records."""

    fields: Mapping[str, object]
    explanation: Explanation
    assumptions: list[str]

    def to_dict(self) -> dict[str, object]:
        """Return the JSON object."""
        return {
            "if": {str(name): value for name, value in self.fields.items()},
            **self.explanation.to_dict(),
            "assumptions": self.assumptions,
        }


def counterfactual(
    records: Records,
    actual: Explanation,
    nominal_time: EpochSeconds,
    changed: WhatIf,
    *,
    now: int,
    check: Callable[[], None] | None = None,
) -> Counterfactual:
    """Return what would have become of a period if its job had had other fields.

    `check` is called at each step; what it raises ends the computation.
    """
    recording = recording_of(records, changed.duration)
    until = now if records.job.deleted_at is None else records.job.deleted_at
    made = replay(recording, changed.applied, until=until, check=check)
    explanation = why(_history_of(records, made, nominal_time), nominal_time, now=until)
    assumptions = [*_assumptions(records, recording, made, nominal_time, changed)]
    same = replay(recording, lambda job: job, until=until, check=check)
    own = why(_history_of(records, same, nominal_time), nominal_time, now=until)
    if (own.outcome, own.code) != (actual.outcome, actual.code):
        assumptions.append(
            f"the records do not suffice: replayed under the job's own definition, they give {own.headline!r}"
        )
    fields = {**changed.fields}
    if changed.duration is not None:
        fields["duration"] = format_duration(timedelta(milliseconds=changed.duration))
    return Counterfactual(fields, explanation, assumptions)


class OtherOutcome(NamedTuple):
    """A period that would have ended otherwise; None is an outcome that is still open, or no period."""

    nominal_time: EpochSeconds
    before: Outcome | None
    after: Outcome | None


class OtherOutcomes(NamedTuple):
    """The periods of a job that would have ended otherwise, newest first, of all that were replayed."""

    periods: int
    since: EpochSeconds
    changed: list[OtherOutcome]
    assumptions: list[str]


def other_outcomes(
    records: Records, changed: WhatIf, *, now: int, check: Callable[[], None] | None = None
) -> OtherOutcomes:
    """Return which periods would have ended otherwise if their job had had other fields.

    The recorded inputs are replayed under the job's own definition and under the changed one, and compared.
    `check` is called at each step; what it raises ends the computation.
    """
    recording = recording_of(records, changed.duration)
    until = now if records.job.deleted_at is None else records.job.deleted_at
    own = replay(recording, lambda job: job, until=until, check=check)
    other = replay(recording, changed.applied, until=until, check=check)
    before, after = _outcomes_of(own), _outcomes_of(other)
    times = sorted(before.keys() | after.keys(), reverse=True)
    fates = [OtherOutcome(at, _outcome_at(own, before, at), _outcome_at(other, after, at)) for at in times]
    recorded = {run.nominal_time: run.outcome for run in records.runs if run.kind is RunKind.PERIOD}
    unlike = sum(
        at in recorded and recorded[at] is not None and recorded[at] is not before.get(at) for at in times
    )
    assumptions = [*_assumptions(records, recording, other, None, changed)]
    if unlike:
        assumptions.append(
            f"the records of {counted(unlike, 'period')} do not suffice: "
            "replayed under the job's own definition, they give another outcome"
        )
    moved = [fate for fate in fates if fate.before is not fate.after]
    return OtherOutcomes(len(times), recording.start // 1000, moved, assumptions)


def _outcomes_of(made: Replayed) -> dict[EpochSeconds, Outcome | None]:
    return {run.nominal_time: run.outcome for run in made.runs.values() if run.kind is RunKind.PERIOD}


def _outcome_at(
    made: Replayed, outcomes: Mapping[EpochSeconds, Outcome | None], at: EpochSeconds
) -> Outcome | None:
    """Return the outcome of a period with a run, or of the range that covers it."""
    if at in outcomes:
        return outcomes[at]
    dropped = made.range_of(at)
    return None if dropped is None else dropped.outcome


# --- the recorded inputs ---------------------------------------------------------------------------------


def recording_of(records: Records, duration: int | None = None) -> Recording:
    """Return the inputs of a replay; `duration` is that of runs without a recorded one, in milliseconds."""
    job, definitions = records.job, _in_order([*records.epochs, present_definition(records.job)])
    oldest = definitions[0]
    is_whole = records.is_whole and oldest.epoch == 1
    start, born_at = oldest.edited_at, job.born_at
    if not is_whole and records.runs:
        start = born_at = max(start, 1000 * min(run.nominal_time for run in records.runs) - 1)
    followed = [known for known in definitions if known.edited_at <= start] or [oldest]
    inputs = [
        *_edits(definitions, start),
        *_stops(records, start),
        *_gaps(records),
        *_requests(records, start),
    ]
    take_overs = [each.at for each in inputs if each.kind is InputKind.TAKE_OVER and each.at <= start]
    return Recording(
        _job_of(followed[-1], job.identity),
        start,
        born_at,
        job.launcher_kind,
        records.traits,
        [each for each in inputs if each.at > start],
        _executions(records),
        Execution(_typical(records.runs) or 0 if duration is None else duration),
        max(take_overs, default=None),
    )


def _in_order(definitions: Sequence[EpochRecord]) -> list[EpochRecord]:
    """Return the definitions of a job, none later than those that followed it.

    One that was written while the clock was ahead counts from the correction on.
    """
    ordered, latest = list[EpochRecord](), definitions[-1].edited_at
    for known in reversed(definitions):
        latest = min(latest, known.edited_at)
        ordered.append(known if known.edited_at == latest else known._replace(edited_at=latest))
    return ordered[::-1]


def _job_of(definition: EpochRecord, identity: str) -> Job:
    return compiled_job(definition.definition, identity).for_job(identity)


def _edits(definitions: Sequence[EpochRecord], start: int) -> Iterable[Input]:
    for known in definitions:
        if known.edited_at > start:
            yield Input(known.edited_at, InputKind.EDIT, job=_job_of(known, known.identity))


def _stops(records: Records, start: int) -> Iterable[Input]:
    """Yield the pauses and suspends of people; those of the engine follow from the replay."""
    for each in records.incidents:
        detail = detail_of(each)
        if each.kind is IncidentKind.SUSPENDED:
            yield Input(max(each.from_at, start + 1), InputKind.SUSPEND)
            if each.until_at is not None:
                yield Input(each.until_at, InputKind.UNSUSPEND)
        elif each.kind is IncidentKind.PAUSED:
            until = detail.get("until")
            if each.subject != ENGINE:
                because = detail.get("because") or BY_HAND
                yield Input(max(each.from_at, start + 1), InputKind.PAUSE, because=because, until=until)
            if each.until_at is not None and each.until_at != until:
                yield Input(each.until_at, InputKind.RESUME)


def _corrections(records: Records) -> list[ClockRecord]:
    """Return the corrections of the clock of the job's workers, and the excursions that they ended, as one.

    A clock that moved ahead again before it was steady is corrected later.
    """
    shard = shard_of(records.job.identity)
    elsewhere = {
        each.from_at
        for each in records.incidents
        if each.kind is IncidentKind.CLOCK_BEHIND and not covers(each, shard)
    }
    behind = [each for each in records.excursions if each.event is ClockEvent.BEHIND]
    corrected = [
        each
        for each in behind
        if each.ending is ClockEnding.CORRECTED and each.ended_at and each.found_at not in elsewhere
    ]
    return [
        each._replace(found_at=min(before.found_at for before in behind if _is_part(before, each)))
        for each in corrected
    ]


def _is_part(before: ClockRecord, correction: ClockRecord) -> bool:
    """Say whether an excursion is a correction, or ended because the clock moved ahead again before it."""
    has_moved = before.ending is ClockEnding.MOVED and before.ended_at is not None
    return before == correction or (
        has_moved and correction.found_at < (before.ended_at or 0) <= correction.reference
    )


def _gaps(records: Records) -> Iterable[Input]:
    """Yield when no worker planned; what a clock that was ahead recorded ends when it was found behind."""
    corrections = _corrections(records)
    for each in _recorded_gaps(records):
        wrong = [
            over.found_at
            for over in corrections
            if over.ended_at is not None
            and each.since < over.ended_at
            and over.found_at < each.at <= over.reference
        ]
        if not wrong:
            yield each
        elif each.since < min(wrong):
            yield each._replace(at=min(wrong), is_ahead=True)
    for over in corrections:
        if over.ended_at is not None:
            yield Input(max(over.ended_at, over.found_at + 1), InputKind.CLOCK_JUMP, since=over.found_at)


def _recorded_gaps(records: Records) -> Iterable[Input]:
    """Yield the take-overs and clock jumps as they were recorded."""
    shard, kind = shard_of(records.job.identity), records.job.launcher_kind
    ends: list[RunRecord | AttemptRecord] = [*records.runs, *records.attempts]
    orphaned = {run.ended_at for run in ends if run.result is Result.ORPHANED}
    for each in records.incidents:
        if each.kind is IncidentKind.TAKE_OVER and each.until_at is not None and covers(each, shard):
            orphans = kind == "callback" or each.until_at in orphaned
            yield Input(each.until_at, InputKind.TAKE_OVER, since=each.from_at, orphans=orphans)
        elif each.kind is IncidentKind.CLOCK_JUMP and each.until_at is not None:
            yield Input(each.until_at, InputKind.CLOCK_JUMP, since=each.from_at)
    for record in records.excursions:
        if record.event is ClockEvent.FORWARD:
            yield Input(record.found_at, InputKind.CLOCK_JUMP, since=record.reference)


def _requests(records: Records, start: int) -> Iterable[Input]:
    for run in records.runs:
        if run.kind is not RunKind.PERIOD and run.created_at > start:
            fresh = RunRecord(
                run.key, run.identity, run.nominal_time, run.created_at, RunStatus.PENDING, Reason.ASKED,
                run.created_at, run.epoch, run.created_at, 1, run.kind,
            )  # fmt: skip
            yield Input(run.created_at, InputKind.REQUEST, run=fresh)


def _executions(records: Records) -> dict[tuple[str, int], Execution]:
    known: dict[tuple[str, int], Execution] = {}
    attempts: list[RunRecord | AttemptRecord] = [*records.attempts, *records.runs]
    for run in attempts:
        execution = execution_of(run.result, run.started_at, run.ended_at, run.error)
        if execution is not None:
            known[run.key, run.attempt] = execution
    return known


def _durations(runs: Sequence[RunRecord]) -> list[int]:
    return [
        run.ended_at - run.started_at
        for run in runs
        if run.result is Result.SUCCESS and run.started_at is not None and run.ended_at is not None
    ]


def _typical(runs: Sequence[RunRecord]) -> int | None:
    durations = _durations(runs)
    return sorted(durations)[(len(durations) - 1) // 2] if durations else None


# --- the answer ------------------------------------------------------------------------------------------


def _history_of(records: Records, made: Replayed, nominal_time: EpochSeconds) -> PeriodHistory:
    """Return the replayed records of a period, with the names of recorded incidents."""
    run = made.run_of(nominal_time)
    signed = {(each.kind, each.from_at): each for each in records.incidents}
    incidents = [each for each in records.incidents if each.identity is None]
    incidents += [
        each if each.kind is IncidentKind.BLOCKED else signed.get((each.kind, each.from_at), each)
        for each in made.incidents
    ]
    epochs = [known for _, known in sorted(made.definitions.items())]
    attempts = [_attempt_of(each) for each in made.attempts if run is not None and each.key == run.key]
    return PeriodHistory(
        made.job,
        epochs,
        run,
        attempts,
        None if run is not None else made.range_of(nominal_time),
        incidents=incidents,
        blockers=made.runs,
    )


def _attempt_of(run: RunRecord) -> AttemptRecord:
    return AttemptRecord(
        run.key, run.attempt, run.token, run.started_at, run.ended_at, run.result, run.error, run.run_id
    )


def _assumptions(
    records: Records, recording: Recording, made: Replayed, nominal_time: EpochSeconds | None, changed: WhatIf
) -> Iterable[str]:
    """Yield what the answer takes for granted although no record says it."""
    assumed = sorted({made.runs[key].nominal_time for key, _ in made.assumed if key in made.runs})
    if assumed:
        length = format_duration(timedelta(milliseconds=recording.assumed.duration or 0))
        count = len(_durations(records.runs))
        source = f"the median of {counted(count, 'recorded run')}"
        source = source if count else "no run with a duration is recorded"
        source = "as given" if changed.duration is not None else source
        if assumed == [nominal_time]:
            yield f"its run, which has no recorded duration, takes {length} and succeeds ({source})"
        else:
            runs = counted(len(assumed), "run")
            yield f"each of {runs} without a recorded duration takes {length} and succeeds ({source})"
    if not records.is_whole or (records.epochs[:1] and records.epochs[0].epoch > 1):
        yield f"the replay starts at {rfc3339(recording.start // 1000)}: older records are not read"
    for over in _corrections(records):
        yield (
            f"the clock was ahead, up to {rfc3339(over.reference // 1000)}: what it recorded then counts "
            f"from {rfc3339(over.found_at // 1000)} on, when it was found behind"
        )
    if any(record.event is ClockEvent.BEHIND and record.ended_at is None for record in records.excursions):
        yield "the clock is behind the records, and what waits for its correction is not replayed"
