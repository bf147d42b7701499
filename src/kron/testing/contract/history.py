# ruff: noqa: D102 - the name of a test is its sentence
"""The history ports: excursions of clocks, incidents and notices, kept beside jobs and runs."""

from kron.core.plan.incident import STOPPED, clock_jump, detail_of, ended, paused, suspended, took_over
from kron.core.plan.query import AuditFilter, PruneBounds
from kron.core.plan.record import (
    ClockEnding,
    ClockEvent,
    ClockRecord,
    IncidentKind,
    IncidentRecord,
    NoticeEvent,
    NoticeRecord,
    NoticeState,
    ReopenedRecord,
    RunStatus,
)
from kron.core.plan.step import Ownership, Predecessor, Rewind
from kron.core.shard import SHARDS
from kron.ports import Store
from kron.testing.contract.sample import (
    CLEAN,
    DEFINITION,
    ELSEWHERE,
    MINUTE,
    NOON,
    NOW,
    SPACE,
    a_change,
    a_job,
    a_range,
    a_run,
    an_entry,
    stored,
    written,
)


class ClockContract:
    """Excursions of a worker's clock are kept, and the records of a time ahead are withdrawn together."""

    async def test_jobs_written_after_an_instant_are_found_by_pages_of_names(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job("early"))
        for name in ("c", "a", "b"):
            await store.put(SPACE, created=[a_job(name)], changed=[], now=NOW + 5)
        await store.put(ELSEWHERE, created=[a_job("other")], changed=[], now=NOW + 5)
        first = await store.ahead(ownership, since=NOW, limit=2)
        assert [state.job.identity for state in first] == ["a", "b"]
        rest = await store.ahead(ownership, since=NOW, after="b", limit=2)
        assert [state.job.identity for state in rest] == ["c"]
        assert await store.ahead(ownership, since=NOW + 5, limit=2) == []

    async def test_records_after_a_nominal_time_come_with_their_definitions(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job(), a_job("other"))
        await written(store, ownership, a_run(), a_run(nominal_time=NOON + 60), a_run("other"))
        (state,) = await store.cases(SPACE, ["backup"])
        change = a_change(state.job, epoch=2, edited_at=NOW)
        change.ranges += [a_range("backup", NOON - 600, NOON - 60), a_range("backup", NOON - 50, NOON + 1)]
        assert await store.put(SPACE, created=[], changed=[change], now=NOW) == CLEAN
        found = await store.recorded(SPACE, {"backup": NOON, "other": NOON})
        assert found.keys() == {"backup"}
        assert [run.nominal_time for run in found["backup"].runs] == [NOON + 60]
        assert list(found["backup"].ranges) == [a_range("backup", NOON - 50, NOON + 1)]
        assert dict(found["backup"].definitions) == {1: DEFINITION}

    async def test_a_rewind_withdraws_records_and_keeps_them_beside_the_others(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        gone = a_run(nominal_time=NOON + 60, status=RunStatus.MISSED, is_open=0, started_at=None)
        await written(store, ownership, a_run(), gone)
        (state,) = await store.cases(SPACE)
        first = a_change(state.job)
        first.ranges.append(a_range("backup", NOON + 120, NOON + 600))
        assert await store.settle(ownership, [first], now=NOW) == CLEAN
        kept, (cut,) = a_range("backup", NOON + 120, NOON + 180), first.ranges
        open_again = ReopenedRecord(*a_range("backup", NOON + 240, NOON + 600), NOW)
        change = a_change(first.job, epoch=2, handled=f"[[{NOON},{NOON}]]")
        change.rewind = Rewind([gone], [cut], [kept], [open_again])
        assert await store.settle(ownership, [change], now=NOW) == CLEAN
        assert [run.nominal_time for run in await store.runs(SPACE, "backup")] == [NOON]
        assert await store.ranges(SPACE, "backup") == [kept]
        assert await store.reopened(SPACE, "backup", at=NOON + 600) == [open_again]
        assert await store.reopened(SPACE, "backup", at=NOON + 180) == []
        assert [epoch.epoch for epoch in await store.epochs(SPACE, "backup")] == [1]
        stale = a_change(first.job)
        stale.rewind = Rewind(cut=[kept])
        assert (await store.settle(ownership, [stale], now=NOW)).stale_jobs == {"backup"}
        assert await store.ranges(SPACE, "backup") == [kept]
        await store.forget(SPACE, ["backup"])
        await stored(store, a_job())
        assert await store.reopened(SPACE, "backup", at=NOON + 600) == []

    async def test_excursions_are_kept_newest_first_and_a_correction_lowers_the_latest_instant(
        self, store: Store
    ) -> None:
        ownership = await store.acquire(SPACE, "a")
        await store.settle(ownership, (), now=NOW + 1_000_000)
        behind = ClockRecord(ClockEvent.BEHIND, NOW, "a", NOW + 1_000_000)
        forward = ClockRecord(ClockEvent.FORWARD, NOW, "a", NOW - 9, NOW, ClockEnding.MOVED)
        for record in (behind, forward):
            await store.note_clock(ownership, record)
        over = behind._replace(ended_at=NOW + 7, ending=ClockEnding.CORRECTED, reopened=5)
        await store.note_clock(ownership, over, high=NOW + 7)
        assert await store.clock_records(SPACE) == [forward, over]
        assert await store.clock_records(SPACE, limit=1) == [forward]
        assert await store.clock_records(ELSEWHERE) == []
        await store.release(ownership)
        assert (await store.acquire(SPACE, "b")).high == NOW + 7

    async def test_the_last_batch_of_a_wake_says_the_latest_instant_that_any_process_recorded(
        self, store: Store
    ) -> None:
        ownership = await store.acquire(SPACE, "a")
        assert (await store.load(ownership, until=NOW, limit=10)).high == 0
        await store.put(SPACE, created=[], changed=[], now=NOW + 1_000_000)
        await store.put(ELSEWHERE, created=[], changed=[], now=NOW + 2_000_000)
        assert (await store.load(ownership, until=NOW, limit=10)).high == NOW + 1_000_000
        few = ownership._replace(shards=dict(list(ownership.shards.items())[:5]))
        assert (await store.load(few, until=NOW, limit=10)).high == NOW + 1_000_000
        over = ClockRecord(ClockEvent.BEHIND, NOW, "a", NOW + 1_000_000, NOW + 7, ClockEnding.CORRECTED)
        await store.note_clock(ownership, over, high=NOW + 7)
        assert (await store.load(ownership, until=NOW, limit=10)).high == NOW + 7


class IncidentContract:
    """Incidents are written with the change that causes them, and read by the interval they overlap."""

    async def test_an_outage_lasts_from_the_end_of_the_last_owner_to_the_next(self, store: Store) -> None:
        async def absence(namespace: str = SPACE) -> tuple[str, str | None, int] | None:
            outage = await store.absence(namespace, 5, now=NOW + 2)
            return None if outage is None else (detail_of(outage)["ending"], outage.actor, outage.from_at)

        assert await absence() == ("first", None, 0)
        ownership = await store.acquire(SPACE, "a", now=NOW)
        assert await absence() is None
        assert await absence(ELSEWHERE) == ("first", None, 0)
        await store.release(ownership, now=NOW + 1)
        assert await absence() == ("stopped", "a", NOW + 1)
        await store.acquire(SPACE, "b", now=NOW + 2)
        assert await absence() is None

    async def test_leases_name_their_worker_its_take_over_and_its_version(self, store: Store) -> None:
        assert await store.leases(SPACE, now=NOW) == []
        first = await store.acquire(SPACE, "a", now=NOW)
        (lease,) = await store.leases(SPACE, now=NOW)
        assert (lease.owner, lease.shards, lease.is_alive) == ("a", tuple(sorted(first.shards)), True)
        assert (lease.taken_at, lease.version) == (None, None)
        assert lease.renewed_at in (None, NOW)
        taken = took_over("a", NOW, since=0, before=None, ending="first", shards=None, version="1.2")
        later = taken._replace(until_at=NOW + 5, detail=taken.detail and taken.detail.replace("1.2", "1.3"))
        of_other = took_over("b", NOW + 9, since=0, before=None, ending="first", shards=None, version="9")
        await store.note_incidents(first, [taken, later, of_other])
        (lease,) = await store.leases(SPACE, now=NOW)
        assert (lease.taken_at, lease.version) == (NOW + 5, "1.3")
        assert await store.leases(ELSEWHERE, now=NOW) == []
        await store.release(first, now=NOW)
        assert await store.leases(SPACE, now=NOW) == []

    async def test_a_drain_is_asked_of_one_worker_noticed_by_it_and_ended(self, store: Store) -> None:
        first = await store.acquire(SPACE, "a", now=NOW)
        assert not await store.is_drained(SPACE, "a", now=NOW)
        entry = an_entry(identity="a", action="drain", at=NOW)
        await store.set_drain(SPACE, "a", drain=True, audit=entry)
        await store.set_drain(SPACE, "a", drain=True, audit=entry._replace(at=NOW + 1))
        (lease,) = await store.leases(SPACE, now=NOW)
        assert (lease.owner, lease.drained_at, len(lease.shards)) == ("a", NOW, SHARDS)
        assert await store.is_drained(SPACE, "a", now=NOW)
        assert not await store.is_drained(SPACE, "b", now=NOW)
        assert not await store.is_drained(ELSEWHERE, "a", now=NOW)
        await store.release(first, now=NOW)
        (lease,) = await store.leases(SPACE, now=NOW)
        assert (lease.owner, lease.drained_at, lease.shards, lease.is_alive) == ("a", NOW, (), True)
        assert lease.renewed_at is not None
        await store.set_drain(SPACE, "a", drain=False, audit=entry._replace(at=NOW + 2, action="end_drain"))
        assert not await store.is_drained(SPACE, "a", now=NOW)
        assert await store.leases(SPACE, now=NOW) == []
        entries = await store.audits(SPACE, AuditFilter(identity="a"))
        assert [(each.record.action, each.record.at) for each in entries] == [
            ("end_drain", NOW + 2),
            ("drain", NOW + 1),
            ("drain", NOW),
        ]

    async def test_the_drain_of_a_worker_that_ended_long_ago_is_forgotten(self, store: Store) -> None:
        entry = an_entry(identity="old", action="drain", at=NOW)
        await store.set_drain(SPACE, "old", drain=True, audit=entry)
        later = entry._replace(at=NOW + 2 * 86_400_000)
        await store.set_drain(SPACE, "new", drain=True, audit=later)
        assert [lease.owner for lease in await store.leases(SPACE, now=NOW)] == ["new"]

    async def test_an_incident_is_written_with_its_change_and_closed_with_another(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        (job,) = await stored(store, a_job())
        opened = paused("backup", NOW, because="a \0 reason", until=None)._replace(actor="alice")
        first = a_change(job)
        first.incidents = (opened,)
        assert await store.settle(ownership, [first], now=NOW) == CLEAN
        assert await _incidents(store) == [opened]
        second = a_change(first.job)
        second.closed = (ended(IncidentKind.PAUSED, "backup", NOW + 5)._replace(ended_by="bob"),)
        assert await store.put(SPACE, created=[], changed=[second], now=NOW + 5) == CLEAN
        over = opened._replace(until_at=NOW + 5, ended_by="bob")
        assert await _incidents(store) == [over]
        stale = a_change(job)
        stale.incidents = (suspended("backup", NOW),)
        assert (await store.settle(ownership, [stale], now=NOW)).stale_jobs == {"backup"}
        assert await _incidents(store) == [over]

    async def test_incidents_are_read_by_job_namespace_and_interval(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job(), a_job("other", paused=1))
        jump = clock_jump("a", NOW - MINUTE, NOW)
        await store.note_incidents(ownership, [jump])
        assert await _incidents(store) == [jump]
        assert await store.incidents(SPACE, "backup", since=NOW + 1, until=NOW + 9) == []
        assert await store.incidents(SPACE, "backup", since=0, until=NOW - MINUTE - 1) == []
        created = paused("other", NOW - MINUTE, because="created paused", until=None)
        assert await store.incidents(SPACE, "other", since=NOW, until=NOW) == [created, jump]
        assert await store.incidents(SPACE, "other", since=NOW, until=NOW, limit=1) == [jump]
        assert await store.incidents(ELSEWHERE, "other", since=NOW, until=NOW) == []
        await store.forget(SPACE, ["other"])
        assert await store.incidents(SPACE, "other", since=NOW, until=NOW) == [jump]

    async def test_old_incidents_are_pruned_and_lasting_ones_stay(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job(paused=1))
        jump = clock_jump("a", NOW - MINUTE, NOW)
        await store.note_incidents(ownership, [jump])
        await store.prune(SPACE, PruneBounds(before=NOW), limit=10)
        assert len(await _incidents(store)) == 2
        await store.prune(SPACE, PruneBounds(before=NOW + 1), limit=10)
        (lasting,) = await _incidents(store)
        assert lasting.kind is IncidentKind.PAUSED

    async def test_a_take_over_names_the_owner_that_stopped(self, store: Store) -> None:
        first = await store.acquire(SPACE, "a")
        assert first.predecessors == {}
        await store.release(first, now=NOW)
        second = await store.acquire(SPACE, "b")
        assert set(second.predecessors.values()) == {Predecessor("a", NOW, STOPPED)}
        assert second.predecessors.keys() == second.shards.keys()


async def _incidents(store: Store) -> list[IncidentRecord]:
    return await store.incidents(SPACE, "backup", since=NOW - MINUTE, until=NOW + MINUTE)


def a_notice(name: str = "n1", identity: str = "backup", **fields: object) -> NoticeRecord:
    """Return a notice that is still to be sent."""
    run = a_run(identity)
    notice = NoticeRecord(name, identity, NoticeEvent.FAILED, "ops", NOON, run.key, NOW, due_at=NOW)
    return notice._replace(**fields)  # type: ignore[arg-type]


class NoticeContract:
    """A notice is neither lost nor written twice."""

    async def _write(self, store: Store, *notices: NoticeRecord) -> Ownership:
        ownership = await store.acquire(SPACE, "a")
        for notice in notices:
            (state,) = await store.cases(SPACE, [notice.identity])
            change = a_change(state.job)
            change.notices = [notice]
            assert await store.settle(ownership, [change], now=NOW) == CLEAN
        return ownership

    async def test_every_field_of_a_notice_is_kept_and_can_change(self, store: Store) -> None:
        await stored(store, a_job())
        full = a_notice(periods=3, detail="exit status 3\x00", tries=2, batch="b", sent_as="x", error="y")
        await self._write(store, full)
        (found,) = await store.pending_notices(SPACE, limit=10)
        assert found.number > 0
        assert found._replace(number=0) == full._replace(detail="exit status 3\ufffd")
        assert isinstance(found.event, NoticeEvent)
        sent = found._replace(
            state=NoticeState.SENT, due_at=None, tries=3, batch="c", ended_at=NOW + 1, sent_as="z", error=None
        )
        await store.note_notices(SPACE, [sent])
        assert await store.pending_notices(SPACE, limit=10) == []
        assert await store.notices(SPACE, "backup", first=NOON, last=NOON) == [sent]

    async def test_a_notice_is_written_once_and_only_with_its_change(self, store: Store) -> None:
        await stored(store, a_job())
        ownership = await self._write(store, a_notice(), a_notice(detail="again"), a_notice("n2"))
        assert [notice.id for notice in await store.pending_notices(SPACE, limit=10)] == ["n1", "n2"]
        (state,) = await store.cases(SPACE, ["backup"])
        stale = a_change(state.job._replace(revision=state.job.revision - 1))
        stale.notices = [a_notice("n3")]
        assert (await store.settle(ownership, [stale], now=NOW)).stale_jobs == {"backup"}
        assert len(await store.pending_notices(SPACE, limit=10)) == 2

    async def test_one_target_does_not_hide_the_notices_of_another(self, store: Store) -> None:
        await stored(store, a_job())
        many = [a_notice(f"n{number}", target="down") for number in range(5)]
        await self._write(store, *many, a_notice("other", target="ops"))
        found = await store.pending_notices(SPACE, limit=2)
        assert [notice.id for notice in found] == ["n0", "n1", "other"]

    async def test_one_owner_does_not_hide_the_notices_of_another(self, store: Store) -> None:
        await stored(store, a_job("ann/a"), a_job("bob/b"))
        many = [a_notice(f"n{number}", "ann/a", target=f"t{number % 2}") for number in range(6)]
        await self._write(store, *many, a_notice("other", "bob/b"))
        found = await store.pending_notices(SPACE, limit=10, of_owner=3)
        assert [notice.id for notice in found] == ["n0", "n1", "n2", "other"]
        found = await store.pending_notices(SPACE, limit=1, of_owner=3)
        assert [notice.id for notice in found] == ["n0", "n1", "other"]

    async def test_owners_of_one_target_take_turns(self, store: Store) -> None:
        await stored(store, a_job("ann/a"), a_job("bob/b"))
        many = [a_notice(f"n{number}", "ann/a") for number in range(5)]
        await self._write(store, *many, a_notice("other", "bob/b"))
        found = await store.pending_notices(SPACE, limit=2)
        assert [notice.id for notice in found] == ["n0", "other"]
        # What was tried is sent again as it was.
        await store.note_notices(SPACE, [found[1]._replace(batch="other", tries=1)])
        assert [notice.id for notice in await store.pending_notices(SPACE, limit=1)] == ["other"]
        assert [notice.id for notice in await store.pending_notices(SPACE, limit=2)] == ["n0", "other"]

    async def test_the_oldest_notices_of_an_owner_with_too_many_are_given_up(self, store: Store) -> None:
        await stored(store, a_job("ann/a"), a_job("ann/b"), a_job("bob/b"))
        names = ["ann/a", "ann/b"] * 2
        many = [a_notice(f"n{number}", name, target=f"t{number}") for number, name in enumerate(names)]
        await self._write(store, *many, a_notice("other", "bob/b"))
        assert await store.give_up_notices(SPACE, most=3, error="too many", now=NOW + 5) == 1
        pending = await store.pending_notices(SPACE, limit=10)
        assert [notice.id for notice in pending] == ["n1", "n2", "n3", "other"]
        (ended,) = [each for each in await store.notices(SPACE, "ann/a", first=NOON, last=NOON) if each.error]
        assert (ended.id, ended.state, ended.error) == ("n0", NoticeState.FAILED, "too many")
        assert (ended.due_at, ended.ended_at) == (None, NOW + 5)
        assert await store.give_up_notices(SPACE, most=3, error="too many", now=NOW + 6) == 0

    async def test_notices_are_found_by_job_and_nominal_time_and_namespace(self, store: Store) -> None:
        await stored(store, a_job(), a_job("other"))
        await stored(store, a_job(), namespace=ELSEWHERE)
        later = a_notice("n2", nominal_time=NOON + 60)
        await self._write(store, a_notice(), later, a_notice("n3", "other"))
        found = await store.notices(SPACE, "backup", first=NOON, last=NOON + 59)
        assert [notice.id for notice in found] == ["n1"]
        both = await store.notices(SPACE, "backup", first=NOON - 60, last=NOON + 60)
        assert [notice.id for notice in both] == ["n1", "n2"]
        assert await store.notices(SPACE, "backup", first=NOON - 60, last=NOON + 60, limit=1) == both[:1]
        assert await store.notices(SPACE, "unknown", first=NOON, last=NOON) == []
        assert await store.pending_notices(ELSEWHERE, limit=10) == []

    async def test_a_notice_is_removed_by_its_number_and_with_its_job(self, store: Store) -> None:
        await stored(store, a_job(), a_job("other"))
        await self._write(store, a_notice(), a_notice("n2"), a_notice("n3", "other"))
        first, *_ = await store.pending_notices(SPACE, limit=10)
        await store.note_notices(SPACE, [], removed=[first.number])
        assert [notice.id for notice in await store.pending_notices(SPACE, limit=10)] == ["n2", "n3"]
        await store.forget(SPACE, ["backup"])
        assert [notice.id for notice in await store.pending_notices(SPACE, limit=10)] == ["n3"]
