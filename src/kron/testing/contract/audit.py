# ruff: noqa: D102 - the name of a test is its sentence
"""The audit log: written with its change, and listed."""

import json

from kron.core.plan.query import AuditFilter
from kron.core.plan.record import AuditRecord
from kron.ports import Store
from kron.testing.contract.sample import CLEAN, ELSEWHERE, NOW, SPACE, a_change, a_job, stored

ALL = AuditFilter()


def an_entry(identity: str = "backup", **changes: object) -> AuditRecord:
    """Return the audit record of a change."""
    after = json.dumps({"paused": True})
    record = AuditRecord(NOW, "ann", "request-1", "pause", identity, "ann", None, after)
    return AuditRecord(**{**record._asdict(), **changes})


async def listed(store: Store, wanted: AuditFilter = ALL) -> list[AuditRecord]:
    """Return the matching audit records."""
    return [audited.record for audited in await store.audits(SPACE, wanted)]


class AuditContract:
    """The audit log has an entry for each committed change, and for no other."""

    async def test_a_change_and_its_audit_are_written_together(self, store: Store) -> None:
        entry = an_entry(before=json.dumps({"paused": False}))
        created = an_entry(action="create", request_id=None, user_id=None)
        assert await store.put(SPACE, created=[a_job()], changed=[], audit=[created], now=NOW) == CLEAN
        ((job, _),) = [(state.job, state.runs) for state in await store.cases(SPACE, ["backup"])]
        change = a_change(job, paused=1)
        assert await store.put(SPACE, created=[], changed=[change], audit=[entry], now=NOW) == CLEAN
        assert await listed(store) == [entry, created]
        assert await store.audits(ELSEWHERE, ALL) == []

    async def test_a_refused_change_leaves_no_audit(self, store: Store) -> None:
        (job,) = await stored(store, a_job())
        again = await store.put(SPACE, created=[a_job()], changed=[], audit=[an_entry()], now=NOW)
        assert again.stale_jobs == {"backup"}
        stale = a_change(job._replace(revision=job.revision + 7), paused=1)
        refused = await store.put(SPACE, created=[], changed=[stale], audit=[an_entry()], now=NOW)
        assert refused.stale_jobs == {"backup"}
        assert await listed(store) == []

    async def test_audits_are_filtered_by_job_caller_and_owner(self, store: Store) -> None:
        entries = [
            an_entry("a", who="ann", user_id="ann"),
            an_entry("b", who="bob", user_id="team"),
            an_entry("a", who="bob", user_id=None),
        ]
        await store.put(SPACE, created=[], changed=[], audit=entries, now=NOW)
        a, b, c = entries
        for wanted, expected in (
            (ALL, [c, b, a]),
            (AuditFilter(identity="a"), [c, a]),
            (AuditFilter(who="bob"), [c, b]),
            (AuditFilter(users=["ann", "team"]), [b, a]),
            (AuditFilter(users=[]), []),
            (AuditFilter(identity="a", users=["ann"]), [a]),
        ):
            assert await listed(store, wanted) == expected, wanted

    async def test_audits_are_listed_latest_first_page_by_page(self, store: Store) -> None:
        entries = [an_entry(str(number)) for number in range(5)]
        await store.put(SPACE, created=[], changed=[], audit=entries, now=NOW)
        first = await store.audits(SPACE, ALL, limit=2)
        rest = await store.audits(SPACE, ALL, before=first[-1].number, limit=10)
        assert [audited.record for audited in (*first, *rest)] == entries[::-1]

    async def test_an_audit_may_hold_any_characters(self, store: Store) -> None:
        odd = an_entry(who='"a,b}{\\', after=json.dumps({"error": 'NUL \0 "quoted" {braces}'}))
        await store.put(SPACE, created=[], changed=[], audit=[odd], now=NOW)
        assert await listed(store) == [odd]
