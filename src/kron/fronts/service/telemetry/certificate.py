"""Certificates as texts: what a decision's `to_dict` says, written with what its definition fixes kept ready.

A log has one for each period, so jobs of one definition share everything but their names and times.
"""

import json
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import NamedTuple

from kron.core.job.decision import FORMAT, decide_at, is_plain
from kron.core.job.seed import period_key, seed_hash
from kron.core.plan.compiled import compiled_job
from kron.core.time.duration import format_duration
from kron.core.time.instant import EpochSeconds, rfc3339
from kron.core.time.zone import tzdata_version

# Definitions kept ready.
MAX_FIXED = 10_000


class Fixed(NamedTuple):
    """What a definition fixes of a certificate: the texts between its names and times."""

    is_plain: bool
    salt: str
    window: str
    how: str
    constraints: str
    tzdata: str


@lru_cache(maxsize=MAX_FIXED)
def _fixed_of(definition: str, identity: str) -> Fixed:
    job = compiled_job(definition, identity).job
    window = {"mode": job.window.mode.value, "duration": format_duration(job.window.duration)}
    how = (
        f'"timezone":{json.dumps(job.schedule.timezone)},"distribution":{json.dumps(job.distribution.to_dict())}'
        f',"seed_strategy":{json.dumps(job.seed_strategy.value)}'
    )
    constraints = (
        f'"constraints":{json.dumps(job.constraints.to_dict())},'
        f'"constraints_applied":{json.dumps(job.constraints.applied)}'
    )
    tzdata = json.dumps(tzdata_version(job.schedule.timezone))
    return Fixed(is_plain(job), json.dumps(job.salt), json.dumps(window), how, constraints, tzdata)


def certificate_of(definition: str, identity: str, nominal_time: EpochSeconds) -> str:
    """Return the certificate of one period's decision as JSON."""
    terms = compiled_job(definition, identity)
    fixed = _fixed_of(definition, terms.job.identity)
    job, period_id = terms.job, rfc3339(nominal_time)
    if fixed.is_plain:
        key = period_key(job.seed_strategy, period_id, nominal_time, job.schedule.plan.zone)
        seed, attempts = seed_hash(identity, key, job.salt), 0
        start = end = period_id
        chosen: str | None = period_id
    else:
        decision = decide_at(terms.for_job(identity), nominal_time)
        key, seed, attempts = decision.period_key, decision.seed_hash, decision.attempts
        start, end = map(rfc3339, decision.bounds)
        chosen = None if decision.chosen_time is None else rfc3339(decision.chosen_time)
    shown = "null" if chosen is None else f'"{chosen}"'
    return (
        f'{{"kron_decision":{FORMAT},"identity":{encode_basestring_ascii(identity)},"salt":{fixed.salt},'
        f'"period_id":"{period_id}","nominal_time":"{period_id}","window":{fixed.window},'
        f'"window_start":"{start}","window_end":"{end}","chosen_time":{shown},'
        f'{fixed.how},"period_key":"{key}","seed_hash":"{seed}","attempts":{attempts},{fixed.constraints},'
        f'"unschedulable":{"true" if chosen is None else "false"},"tzdata_version":{fixed.tzdata}}}'
    )
