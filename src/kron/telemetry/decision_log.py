"""The decision log: a line for each period that is planned, started, dropped or ended, with its reason.

All lines of one commit are the message of one log record, formatted only by a handler that writes them: a
level that hides them costs one comparison.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import NamedTuple

from kron.core.job.decision import FORMAT, decide_at, is_plain
from kron.core.job.outcome import Outcome, Reason
from kron.core.job.seed import period_key, seed_hash
from kron.core.plan.compiled import cached_by_text, compiled_job, definitions_of
from kron.core.plan.record import JobRecord, RangeRecord, Result, RunKind, RunRecord, RunStatus
from kron.core.plan.step import Change, WriteResult, WriteScope
from kron.core.redaction import NO_SECRETS, Redactor
from kron.core.time.duration import format_duration
from kron.core.time.instant import EpochSeconds, rfc3339
from kron.core.time.zone import tzdata_version
from kron.runtime.journal import LimitedLog

LOGGER = logging.getLogger("kron.engine")
PLANNED, ASKED, STARTED, DROPPED, ENDED, NOTED = "planned", "asked", "started", "dropped", "ended", "noted"
# Events that decide on a period; later events follow from no certificate.
DECIDING = frozenset({PLANNED, STARTED, DROPPED})
# Logged as warnings: operators should see these although Kron works as it should.
BAD_STATUSES = frozenset({RunStatus.FAILED, RunStatus.MISSED, RunStatus.UNSCHEDULABLE})
BAD_OUTCOMES = frozenset({Outcome.MISSED, Outcome.UNSCHEDULABLE})
# Definitions whose part of a certificate is cached.
MAX_CACHED = 10_000


# --- entries -------------------------------------------------------------------------------------------


class LogEntry(NamedTuple):
    """An event of one run of a job, or of periods that were dropped together.

    `request` is the id of the request that created the run.
    """

    event: str
    job: JobRecord
    run: RunRecord | RangeRecord
    request: str | None = None

    def text(self, redactor: Redactor, current: str | None = None) -> str:
        """Return a line for people; `current` is the request being handled."""
        request = self.request or current
        text = self._text(redactor)
        return text if request is None else f"{text} (request {redactor.hide(request)})"

    def _text(self, redactor: Redactor) -> str:
        run = self.run
        if isinstance(run, RangeRecord):
            return (
                f"{self.event} {run.identity}: {run.periods} periods from {rfc3339(run.first)} to "
                f"{rfc3339(run.last)}: {_verdict(run.outcome, run.reason)}"
            )
        text = f"{self.event} {run.identity} {rfc3339(run.nominal_time)}: "
        if self.event != ENDED:
            return text + f"{_verdict(run.status, run.reason)} [{run.key[:12]}]"
        error = f", {' '.join(redactor.hide(run.error).split())}" if run.error else ""
        return text + f"{run.status}, {run.result}{error} [{run.key[:12]}, attempt {run.attempt}]"

    def json(self, redactor: Redactor, current: str | None = None) -> str:
        """Return the fields of a JSON line, without its braces; `current` is the request being handled."""
        request = self.request or current
        fields = self._json(redactor)
        if request is None:
            return fields
        via = (
            ""
            if current in (None, request)
            else f'"via_request_id":{json.dumps(redactor.hide(str(current)))},'
        )
        return f'"request_id":{json.dumps(redactor.hide(request))},{via}{fields}'

    def _json(self, redactor: Redactor) -> str:
        run = self.run
        if isinstance(run, RangeRecord):
            return (
                f'"event":"{self.event}","schedule_id":{encode_basestring_ascii(run.identity)},'
                f'"first":"{rfc3339(run.first)}","last":"{rfc3339(run.last)}","periods":{run.periods},'
                f'"outcome":"{run.outcome}","reason":"{run.reason}","why":"{run.reason.sentence}",'
                f'"epoch":{run.epoch}'
            )
        fields = (
            f'"event":"{self.event}","schedule_id":{encode_basestring_ascii(run.identity)},'
            f'"period_id":"{rfc3339(run.nominal_time)}","status":"{run.status}","reason":"{run.reason}",'
            f'"why":"{run.reason.sentence}","fire_time":"{milliseconds_text(run.fire_time)}",'
            f'"idempotency_key":"{run.key}","kind":"{run.kind}","attempt":{run.attempt},"epoch":{run.epoch},'
            f'"launcher":"{self.job.launcher_kind}"'
        )
        if self.event == ENDED:
            error = None if run.error is None else redactor.hide(run.error)
            fields += (
                f',"result":"{run.result}","error":{json.dumps(error)},"run_id":{json.dumps(run.run_id)}'
            )
        definition = self._definition()
        if definition is None:
            return fields
        return f'{fields},"decision":{certificate_of(definition, run.identity, run.nominal_time)}'

    def _definition(self) -> str | None:
        """Return the definition a period was decided by, if the event decides on it and it is loaded."""
        run, job = self.run, self.job
        if self.event not in DECIDING or not isinstance(run, RunRecord) or run.kind is not RunKind.PERIOD:
            return None
        return job.definition if run.epoch == job.epoch else definitions_of(job).get(run.epoch)


@lru_cache(maxsize=4096)
def milliseconds_text(instant: int) -> str:
    """Write an instant in milliseconds; cached, because runs that start together share it."""
    return f"{rfc3339(instant // 1000)[:-1]}.{instant % 1000:03}Z"


def _verdict(status: Outcome | RunStatus, reason: Reason) -> str:
    """Return a status and its reason in words; a sentence that begins with the status replaces it."""
    detail = reason.sentence.removeprefix(f"{status.lower()}: ")
    return f"{status}{', ' if detail == reason.sentence else ': '}{detail}"


class DecisionLines:
    """The entries of one commit as the message of one log record, with the instant of the commit."""

    __slots__ = ("at", "entries")

    def __init__(self, entries: Sequence[LogEntry], at: int) -> None:
        self.entries = entries
        self.at = milliseconds_text(at)

    def texts(self, redactor: Redactor, current: str | None = None) -> list[str]:
        """Return a line for each entry, for people; `current` is the request being handled."""
        return [entry.text(redactor, current) for entry in self.entries]

    def jsons(self, redactor: Redactor, current: str | None = None) -> list[str]:
        """Return the JSON fields of each entry; `current` is the request being handled."""
        return [entry.json(redactor, current) for entry in self.entries]

    def __str__(self) -> str:
        return "\n".join(self.texts(NO_SECRETS))


# --- the log -------------------------------------------------------------------------------------------


class DecisionLog:
    """A journal that writes decisions to a logger; `request_of` returns the request that created a run."""

    def __init__(
        self,
        logger: logging.Logger = LOGGER,
        *,
        request_of: Callable[[RunRecord], str | None] = lambda _: None,
    ) -> None:
        self._logger = logger
        self._events = LimitedLog(logger)
        self._request_of = request_of

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """Log one event of the engine."""
        self._events.write(event, fields)

    def settled(self, changes: Sequence[Change], settled: WriteResult, now: int) -> None:
        """Log a line for each run of a commit, and one for all periods that were dropped together."""
        least = self._logger.getEffectiveLevel()
        if least > logging.WARNING:
            return
        infos: list[LogEntry] = []
        by_level = {logging.DEBUG: [], logging.INFO: infos, logging.WARNING: []}
        for change in changes:
            # Most changes are one of these two: a plain period starts, or the only execution succeeded.
            is_start = change.cohort is not None
            if (is_start and least > logging.INFO) or (
                change.scope is WriteScope.END and least > logging.DEBUG
            ):
                continue
            if change.job.identity in settled.stale_jobs:
                continue
            if is_start and not settled.existing_runs:
                infos.append(LogEntry(STARTED, change.job, change.starts[0]))
                continue
            for level, entry in _entries_of(change, settled.existing_runs, now):
                run = entry.run
                request = None if isinstance(run, RangeRecord) else self._request_of(run)
                by_level[level].append(entry if request is None else entry._replace(request=request))
        for level, entries in by_level.items():
            if entries and level >= least:
                self._logger.log(level, DecisionLines(entries, now))


def _entries_of(change: Change, existing: frozenset[str], now: int) -> Iterator[tuple[int, LogEntry]]:
    """Yield the entries of a change, each with its level."""
    job, starts = change.job, {run.key for run in change.starts}
    ends = {run.key for run in change.ended}
    is_edit = job.edited_at == now
    for runs, is_new in ((change.inserts, True), (change.updates, is_edit)):
        for run in runs:
            if run.key not in existing:
                event = STARTED if run.key in starts else _event_of(run, is_new=is_new, ended=run.key in ends)
                yield _level_of(event, run), LogEntry(event, job, run)
    for dropped in change.ranges:
        level = logging.WARNING if dropped.outcome in BAD_OUTCOMES else logging.INFO
        yield level, LogEntry(DROPPED, job, dropped)


def _event_of(run: RunRecord, *, is_new: bool, ended: bool) -> str:
    if ended:
        return ENDED
    if run.status is RunStatus.PENDING:
        if not is_new:
            return NOTED
        return PLANNED if run.kind is RunKind.PERIOD else ASKED
    return DROPPED if run.started_at is None else NOTED


def _level_of(event: str, run: RunRecord) -> int:
    if event == NOTED or (event == ENDED and run.result is Result.SUCCESS):
        return logging.DEBUG
    return logging.WARNING if event != STARTED and run.status in BAD_STATUSES else logging.INFO


# --- certificates --------------------------------------------------------------------------------------


class CertificateParts(NamedTuple):
    """The JSON texts of a certificate that depend on the definition alone."""

    is_plain: bool
    salt: str
    window: str
    method: str
    constraints: str
    tzdata: str


@cached_by_text(MAX_CACHED)
def _parts_of(definition: str, identity: str) -> CertificateParts:
    job = compiled_job(definition, identity).job
    window = {"mode": job.window.mode.value, "duration": format_duration(job.window.duration)}
    method = (
        f'"timezone":{json.dumps(job.schedule.timezone)},"distribution":{json.dumps(job.distribution.to_dict())}'
        f',"seed_strategy":{json.dumps(job.seed_strategy.value)}'
    )
    constraints = (
        f'"constraints":{json.dumps(job.constraints.to_dict())},'
        f'"constraints_applied":{json.dumps(job.constraints.applied)}'
    )
    tzdata = json.dumps(tzdata_version(job.schedule.timezone))
    return CertificateParts(
        is_plain(job), json.dumps(job.salt), json.dumps(window), method, constraints, tzdata
    )


def certificate_of(definition: str, identity: str, nominal_time: EpochSeconds) -> str:
    """Return the certificate of one period's decision as JSON: the text of its `to_dict`.

    The log has one for each period, so the parts that depend on the definition alone are cached.
    """
    compiled = compiled_job(definition, identity)
    parts = _parts_of(definition, compiled.job.identity)
    job, period_id = compiled.job, rfc3339(nominal_time)
    if parts.is_plain:
        key = period_key(job.seed_strategy, period_id, nominal_time, job.schedule.plan.zone)
        seed, attempts = seed_hash(identity, key, job.salt), 0
        start = end = period_id
        chosen: str | None = period_id
    else:
        decision = decide_at(compiled.for_job(identity), nominal_time)
        key, seed, attempts = decision.period_key, decision.seed_hash, decision.attempts
        start, end = map(rfc3339, decision.bounds)
        chosen = None if decision.chosen_time is None else rfc3339(decision.chosen_time)
    chosen_json = "null" if chosen is None else f'"{chosen}"'
    return (
        f'{{"kron_decision":{FORMAT},"identity":{encode_basestring_ascii(identity)},"salt":{parts.salt},'
        f'"period_id":"{period_id}","nominal_time":"{period_id}","window":{parts.window},'
        f'"window_start":"{start}","window_end":"{end}","chosen_time":{chosen_json},'
        f'{parts.method},"period_key":"{key}","seed_hash":"{seed}","attempts":{attempts},{parts.constraints},'
        f'"unschedulable":{"true" if chosen is None else "false"},"tzdata_version":{parts.tzdata}}}'
    )
