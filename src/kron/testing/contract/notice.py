# ruff: noqa: D102 - the name of a test is its sentence
"""Notices: written with their change, read by target, updated as they are sent, removed with their job."""

from kron.core.plan.record import NoticeEvent, NoticeRecord, NoticeState
from kron.core.plan.step import Ownership
from kron.ports import Store
from kron.testing.contract.sample import CLEAN, ELSEWHERE, NOON, NOW, SPACE, a_change, a_job, a_run, stored


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
