"""Entries: what was written of one run, as a line of a log for people or for programs."""

import json
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import NamedTuple

from kron.core.plan.record import JobRecord, RangeRecord, RunKind, RunRecord
from kron.core.plan.segment import definitions_of
from kron.core.redaction import Redactor
from kron.core.time.instant import rfc3339
from kron.fronts.service.telemetry.certificate import certificate_of

PLANNED, ASKED, STARTED, DROPPED, ENDED, NOTED = "planned", "asked", "started", "dropped", "ended", "noted"
# Events that decide on a period; what comes after them follows from no certificate.
DECIDING = frozenset({PLANNED, STARTED, DROPPED})


class LogEntry(NamedTuple):
    """What happened to one run of a job, or to periods that were dropped together.

    `request` is the id of the request by which somebody asked for the run.
    """

    event: str
    job: JobRecord
    run: RunRecord | RangeRecord
    request: str | None = None

    def text(self, redactor: Redactor, request: str | None = None) -> str:
        """Return a line for people; `request` is under way."""
        asked = self.request or request
        said = self._text(redactor)
        return said if asked is None else f"{said} (request {redactor.hide(asked)})"

    def _text(self, redactor: Redactor) -> str:
        run = self.run
        if isinstance(run, RangeRecord):
            return (
                f"{self.event} {run.identity}: {run.periods} periods from {rfc3339(run.first)} to "
                f"{rfc3339(run.last)}: {run.outcome}, {run.reason.sentence}"
            )
        told = f"{self.event} {run.identity} {rfc3339(run.nominal_time)}: "
        if self.event != ENDED:
            return told + f"{run.status}, {run.reason.sentence} [{run.key[:12]}]"
        error = f", {' '.join(redactor.hide(run.error).split())}" if run.error else ""
        return told + f"{run.status}, {run.result}{error} [{run.key[:12]}, attempt {run.attempt}]"

    def json(self, redactor: Redactor, request: str | None = None) -> str:
        """Return the fields of a line for programs, without its braces; `request` is under way."""
        asked = self.request or request
        said = self._json(redactor)
        if asked is None:
            return said
        via = (
            "" if request in (None, asked) else f'"via_request_id":{json.dumps(redactor.hide(str(request)))},'
        )
        return f'"request_id":{json.dumps(redactor.hide(asked))},{via}{said}'

    def _json(self, redactor: Redactor) -> str:
        run = self.run
        if isinstance(run, RangeRecord):
            return (
                f'"event":"{self.event}","schedule_id":{encode_basestring_ascii(run.identity)},'
                f'"first":"{rfc3339(run.first)}","last":"{rfc3339(run.last)}","periods":{run.periods},'
                f'"outcome":"{run.outcome}","reason":"{run.reason}","why":"{run.reason.sentence}",'
                f'"epoch":{run.epoch}'
            )
        told = (
            f'"event":"{self.event}","schedule_id":{encode_basestring_ascii(run.identity)},'
            f'"period_id":"{rfc3339(run.nominal_time)}","status":"{run.status}","reason":"{run.reason}",'
            f'"why":"{run.reason.sentence}","fire_time":"{milliseconds_text(run.fire_time)}",'
            f'"idempotency_key":"{run.key}","kind":"{run.kind}","attempt":{run.attempt},"epoch":{run.epoch},'
            f'"launcher":"{self.job.launcher_kind}"'
        )
        if self.event == ENDED:
            error = None if run.error is None else redactor.hide(run.error)
            told += f',"result":"{run.result}","error":{json.dumps(error)},"run_id":{json.dumps(run.run_id)}'
        definition = self._definition()
        if definition is None:
            return told
        return f'{told},"decision":{certificate_of(definition, run.identity, run.nominal_time)}'

    def _definition(self) -> str | None:
        """Return what a period was decided by, where that is at hand and the event decides on it."""
        run, job = self.run, self.job
        if self.event not in DECIDING or not isinstance(run, RunRecord) or run.kind is not RunKind.PERIOD:
            return None
        return job.definition if run.epoch == job.epoch else definitions_of(job).get(run.epoch)


@lru_cache(maxsize=4096)
def milliseconds_text(instant: int) -> str:
    """Write an instant in milliseconds; kept, because what starts together says the same."""
    return f"{rfc3339(instant // 1000)[:-1]}.{instant % 1000:03}Z"
