# ruff: noqa: D102 - the name of a test is its sentence
"""The read port: history newest first, listings, the audit log, and runs counted by group."""

import json

from kron.core.job.outcome import Reason
from kron.core.plan.query import (
    MAX_GROUPED,
    AuditCursor,
    AuditFilter,
    JobFilter,
    JobGroup,
    OpenRuns,
    RunCount,
    RunCursor,
    RunSpan,
    TagCount,
)
from kron.core.plan.record import AuditRecord, RunKind, RunRecord, RunStatus, request_key_of
from kron.ports import Store
from kron.testing.contract.sample import (
    CLEAN,
    DEFINITION,
    ELSEWHERE,
    NOON,
    NOW,
    SPACE,
    a_change,
    a_job,
    a_range,
    a_run,
    an_end,
    an_entry,
    plain,
    stored,
    written,
)

# Another definition than that of the samples.
OTHER = '{"schedule":"0 0 * * 0","timezone":"UTC"}'


class HistoryContract:
    """Runs, attempts and earlier definitions are read back as they were written."""

    async def test_earlier_attempts_are_kept_oldest_first(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        run = a_run(attempt=4)
        earlier = [run._replace(attempt=attempt, error=f"no {attempt}") for attempt in (2, 3, 1)]
        await written(store, ownership, run, attempts=earlier)
        found = await store.attempts(SPACE, run.key)
        assert [(attempt.attempt, attempt.error) for attempt in found] == [
            (1, "no 1"),
            (2, "no 2"),
            (3, "no 3"),
        ]

    async def test_every_write_changes_the_version(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        versions = [await store.version()]
        await stored(store, a_job())
        versions.append(await store.version())
        await written(store, ownership, a_run())
        versions.append(await store.version())
        assert len({*versions}) == len(versions)

    async def test_aggregated_periods_are_listed_newest_first_and_by_a_time_they_cover(
        self, store: Store
    ) -> None:
        ownership = await store.acquire(SPACE, "a")
        (job,) = await stored(store, a_job())
        ranges = [a_range("backup", first, first + 9) for first in (100, 200, 300)]
        change = a_change(job)
        change.ranges += ranges
        assert await store.settle(ownership, [change], now=NOW) == CLEAN
        assert await store.ranges(SPACE, "backup") == ranges[::-1]
        for at, covering in ((199, []), (200, [1]), (205, [1]), (209, [1]), (210, []), (309, [2])):
            assert await store.ranges(SPACE, "backup", at=at) == [ranges[place] for place in covering]

    async def test_runs_are_read_newest_first_and_page_by_page(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        runs = [a_run(nominal_time=NOON + n) for n in range(5)]
        await written(store, ownership, *runs)
        assert await store.runs(SPACE, "backup") == runs[::-1]
        assert await store.runs(SPACE, "backup", limit=2) == [runs[4], runs[3]]
        assert await store.runs(SPACE, "backup", before=NOON + 3, limit=2) == [runs[2], runs[1]]
        assert await store.runs(SPACE, "backup", before=NOON) == []

    async def test_a_period_precedes_the_manual_runs_of_its_nominal_time(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        keys = [request_key_of("backup", RunKind.MANUAL, str(number)) for number in range(5)]
        manual = [a_run(key=key, kind=RunKind.MANUAL) for key in keys]
        await written(store, ownership, *manual[:3], a_run(), *manual[3:])
        assert await store.runs(SPACE, "backup", limit=1) == [a_run()]
        assert sorted(await store.runs(SPACE, "backup")) == sorted([a_run(), *manual])

    async def test_an_enqueued_run_is_found_by_its_key_open_or_closed(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        await stored(store, a_job("other"), namespace=ELSEWHERE)
        runs = [a_run(nominal_time=NOON + number, status=RunStatus.ENQUEUED) for number in range(3)]
        await written(store, ownership, *runs[:2], runs[2]._replace(status=RunStatus.PENDING))
        job = (await store.cases(SPACE))[0].job
        change = a_change(job)
        change.updates += [an_end(runs[1]), runs[2]]
        assert await store.settle(ownership, [change], now=NOW) == CLEAN
        elsewhere = await store.acquire(ELSEWHERE, "a")
        await written(store, elsewhere, a_run("other", status=RunStatus.ENQUEUED))
        wanted = [run.key for run in (runs[0], runs[1], runs[1], runs[2], a_run("other"))]
        found = await store.find_runs(SPACE, [*wanted, "unknown"])
        assert sorted(found) == sorted([runs[0], an_end(runs[1]), runs[2]])
        assert await store.find_runs(SPACE, []) == []

    async def test_a_manual_run_is_found_by_its_key(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        manual = _manual(NOON, "request")
        await written(store, ownership, a_run(), manual)
        assert await store.find_runs(SPACE, [manual.key]) == [manual]
        assert await store.find_runs(ELSEWHERE, [manual.key]) == []

    async def test_the_runs_of_all_jobs_are_read_latest_first_and_page_by_page(self, store: Store) -> None:
        ownership, elsewhere = await store.acquire(SPACE, "a"), await store.acquire(ELSEWHERE, "a")
        await stored(store, a_job("one"), a_job("two"))
        await stored(store, a_job("one"), namespace=ELSEWHERE)
        made = [a_run(name, NOON + n, created_at=NOW + n) for n in range(3) for name in ("one", "two")]
        await written(store, ownership, *made)
        await written(store, elsewhere, a_run("one"))
        latest = sorted(made, key=lambda run: (run.created_at, run.key), reverse=True)
        assert await store.latest_runs(SPACE) == latest
        found: list[RunRecord] = []
        for _ in range(4):
            place = RunCursor(found[-1].created_at, found[-1].key) if found else None
            found += await store.latest_runs(SPACE, before=place, limit=2)
        assert found == latest

    async def test_the_runs_of_all_jobs_are_read_by_their_status(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, a_job())
        ended, open_one = an_end(a_run()), a_run(nominal_time=NOON + 1)
        await written(store, ownership, ended, open_one)
        assert await store.latest_runs(SPACE, status=RunStatus.SUCCESS) == [ended]
        assert await store.latest_runs(SPACE, status=RunStatus.MISSED) == []

    async def test_the_newest_runs_of_some_jobs_are_read_at_once(self, store: Store) -> None:
        ownership, elsewhere = await store.acquire(SPACE, "a"), await store.acquire(ELSEWHERE, "a")
        await stored(store, a_job("one"), a_job("two"), a_job("three"), a_job("idle"))
        await stored(store, a_job("one"), namespace=ELSEWHERE)
        made = [a_run(name, NOON + n) for n in range(4) for name in ("one", "two", "three")]
        manual = _manual(NOON + 3, "request")._replace(identity="two")
        await written(store, ownership, *made, manual)
        await written(store, elsewhere, a_run("one", NOON + 9))
        wanted = ["two", "one", "idle", "unknown", "two"]
        found = await store.newest_runs(SPACE, wanted, limit=3)
        assert found == {name: await store.runs(SPACE, name, limit=3) for name in ("one", "two")}
        assert [run.kind for run in found["two"]] == [RunKind.PERIOD, RunKind.MANUAL, RunKind.PERIOD]
        assert await store.newest_runs(SPACE, [], limit=3) == {}

    async def test_the_runs_of_a_job_are_counted_by_status_between_bounds(self, store: Store) -> None:
        ownership, elsewhere = await store.acquire(SPACE, "a"), await store.acquire(ELSEWHERE, "a")
        await stored(store, a_job(), a_job("other"))
        await stored(store, a_job(), namespace=ELSEWHERE)
        made = [an_end(a_run(nominal_time=NOON + n)) for n in range(5)]
        made[3] = made[3]._replace(status=RunStatus.FAILED)
        retried = a_run(nominal_time=NOON + 10, status=RunStatus.FAILED, due_at=NOW)
        more = [retried, a_run(nominal_time=NOON + 11), a_run(nominal_time=NOON + 20)]
        requested = an_end(_manual(NOON, "request"))
        await written(store, ownership, *made, requested, *more, an_end(a_run("other", NOON)))
        await written(store, elsewhere, an_end(a_run()))
        bounds = [NOON - 60, NOON, NOON + 4, NOON + 10, NOON + 12]
        assert sorted(await store.run_counts(SPACE, "backup", bounds=bounds)) == [
            RunCount(1, RunStatus.FAILED, 1),
            RunCount(1, RunStatus.SUCCESS, 4),
            RunCount(2, RunStatus.SUCCESS, 1),
            RunCount(3, RunStatus.PENDING, 1),
            RunCount(3, RunStatus.STARTED, 1),
        ]
        assert await store.run_counts(SPACE, "unknown", bounds=bounds) == []
        assert await store.run_counts(SPACE, "backup", bounds=[NOON, NOON]) == []

    async def test_the_runs_of_some_users_jobs_are_read(self, store: Store) -> None:
        ownership = await store.acquire(SPACE, "a")
        await stored(store, *(a_job(user, launcher=json.dumps({"user_id": user})) for user in "uvw"), a_job())
        await written(store, ownership, *(run := [a_run(name) for name in ("u", "v", "w")]), a_run())
        theirs = sorted((run[0], run[2]), key=lambda run: (run.created_at, run.key), reverse=True)
        assert await store.latest_runs(SPACE, users=["u", "w", "unknown"]) == theirs
        assert await store.latest_runs(SPACE, users=["u"], status=RunStatus.MISSED) == []
        assert await store.latest_runs(SPACE, users=[]) == []


def _manual(nominal_time: int, request: str) -> RunRecord:
    """Return a manual run."""
    key = request_key_of("backup", RunKind.MANUAL, request)
    return a_run(nominal_time=nominal_time, kind=RunKind.MANUAL, key=key, reason=Reason.ASKED)


ALL = JobFilter()


async def names(store: Store, wanted: JobFilter = ALL, *, after: str = "") -> list[str]:
    """Return the names of the matching jobs."""
    return [found.job.identity for found in await store.find_jobs(SPACE, wanted, after=after)]


def _pending(nominal_time: int, *, due_at: int | None) -> RunRecord:
    return a_run(
        nominal_time=nominal_time, status=RunStatus.PENDING, started_at=None, attempt=0, due_at=due_at
    )


class ListingContract:
    """Jobs are listed by name, page by page, and filtered by name, state and owner."""

    async def test_jobs_are_listed_by_name_page_by_page(self, store: Store) -> None:
        await stored(store, *(a_job(name) for name in ("b", "ä", "B", "a", "a/1", "😀")))
        await stored(store, a_job("elsewhere"), namespace=ELSEWHERE)
        ordered = ["B", "a", "a/1", "b", "ä", "😀"]
        assert await names(store) == ordered
        pages: list[str] = []
        for _ in range(3):
            after = pages[-1] if pages else ""
            found = await store.find_jobs(SPACE, JobFilter(), after=after, limit=2)
            pages += [each.job.identity for each in found]
        assert pages == ordered
        assert await names(store, after="😀") == []

    async def test_a_job_is_listed_with_all_its_fields_and_the_time_of_its_last_change(
        self, store: Store
    ) -> None:
        (job,) = await stored(store, a_job())
        assert await store.put(SPACE, created=[], changed=[a_change(job, failures=3)], now=NOW + 7) == CLEAN
        ((found, changed_at),) = await store.find_jobs(SPACE, JobFilter(names=["backup", "unknown"]))
        assert (plain(found), changed_at) == (plain(a_change(job, failures=3).job), NOW + 7)

    async def test_jobs_are_filtered_by_part_of_the_name_state_and_owner(self, store: Store) -> None:
        launchers = [
            json.dumps({"workflow_id": flow, "user_id": user}) for flow, user in (("w", "u"), ("w", "v"))
        ]
        await stored(
            store,
            a_job("prod/Backup", launcher=launchers[0]),
            a_job("prod/report_1", launcher=launchers[1], launcher_kind="mail", paused=1),
            a_job(
                "test/report%1",
                definition=DEFINITION.replace("UTC", "Europe/Berlin"),
                failures=2,
                suspended=1,
                profile='{"tags":["a b","x"]}',
                applied_set="s",
            ),
        )
        for wanted, expected in (
            (JobFilter(search="BACK"), ["prod/Backup"]),
            (JobFilter(search="report_"), ["prod/report_1"]),
            (JobFilter(search="%"), ["test/report%1"]),
            (JobFilter(search="prod", paused=False), ["prod/Backup"]),
            (JobFilter(paused=True), ["prod/report_1"]),
            (JobFilter(suspended=True), ["test/report%1"]),
            (JobFilter(paused=False, suspended=False), ["prod/Backup"]),
            (JobFilter(workflow_id="w"), ["prod/Backup", "prod/report_1"]),
            (JobFilter(workflow_id="w", user_id="v"), ["prod/report_1"]),
            (JobFilter(failing=True), ["test/report%1"]),
            (JobFilter(failing=False, paused=True), ["prod/report_1"]),
            (JobFilter(user_id="unknown"), []),
            (JobFilter(users=["u", "unknown"]), ["prod/Backup"]),
            (JobFilter(users=["u", "v"], paused=True), ["prod/report_1"]),
            (JobFilter(users=[]), []),
            (JobFilter(names=[]), []),
            (JobFilter(tag="x"), ["test/report%1"]),
            (JobFilter(tag="a b"), ["test/report%1"]),
            (JobFilter(tag="a"), []),
            (JobFilter(applied_set="s"), ["test/report%1"]),
            (JobFilter(applied_set="t"), []),
            (JobFilter(timezone="UTC"), ["prod/Backup", "prod/report_1"]),
            (JobFilter(timezone="Europe/Berlin"), ["test/report%1"]),
            (JobFilter(launcher_kind="mail"), ["prod/report_1"]),
            (JobFilter(launcher_kind="no such"), []),
        ):
            assert await names(store, wanted) == expected, wanted
            assert await store.count_jobs(SPACE, wanted) == len(expected), wanted

    async def test_jobs_are_filtered_by_when_their_next_period_may_start(self, store: Store) -> None:
        await stored(
            store,
            a_job("soon", plan_at=NOW + 5),
            a_job("later", plan_at=NOW + 50),
            a_job("never", plan_at=None),
            a_job("waiting", plan_at=NOW + 50),
        )
        ownership = await store.acquire(SPACE, "a")
        await written(store, ownership, a_run("waiting", due_at=NOW + 7))
        for due_by, expected in (
            (NOW + 4, []),
            (NOW + 5, ["soon"]),
            (NOW + 7, ["soon", "waiting"]),
            (NOW + 50, ["later", "soon", "waiting"]),
        ):
            assert await names(store, JobFilter(due_by=due_by)) == expected, due_by
            assert await store.count_jobs(SPACE, JobFilter(due_by=due_by)) == len(expected), due_by

    async def test_namespaces_are_those_with_jobs(self, store: Store) -> None:
        assert await store.namespaces() == []
        await stored(store, a_job(), a_job("b"), namespace=SPACE)
        await stored(store, a_job(), namespace=ELSEWHERE)
        assert await store.namespaces() == sorted([SPACE, ELSEWHERE])
        await store.forget(ELSEWHERE, [a_job().identity])
        assert await store.namespaces() == [SPACE]

    async def test_open_runs_are_counted_by_state_up_to_a_limit(self, store: Store) -> None:
        assert await store.open_runs(SPACE, now=NOW, limit=10) == OpenRuns()
        await stored(store, a_job())
        await stored(store, a_job(), namespace=ELSEWHERE)
        for space in (ELSEWHERE, SPACE):
            ownership = await store.acquire(space, "a")
            await written(store, ownership, a_run(nominal_time=NOON - 1))
        await written(
            store,
            ownership,
            _pending(NOON + 1, due_at=NOW + 1),
            _pending(NOON + 2, due_at=NOW),
            _pending(NOON + 3, due_at=NOW - 1),
            _pending(NOON + 4, due_at=None),
            a_run(nominal_time=NOON + 5, status=RunStatus.FAILED, due_at=NOW - 1),
            a_run(nominal_time=NOON + 6, status=RunStatus.ENQUEUED, due_at=NOW + 9),
            an_end(a_run(nominal_time=NOON + 7)),
        )
        expected = OpenRuns(planned=1, due=2, held=1, under_way=2, retrying=1)
        assert await store.open_runs(SPACE, now=NOW, limit=10) == expected
        assert sum(await store.open_runs(SPACE, now=NOW, limit=3)) == 3
        assert await store.open_runs(ELSEWHERE, now=NOW, limit=10) == OpenRuns(under_way=1)

    async def test_deleted_jobs_are_listed_on_request_only(self, store: Store) -> None:
        await stored(store, a_job("here"), a_job("gone", deleted_at=NOW, plan_at=None))
        assert await names(store) == ["here"]
        assert await names(store, JobFilter(deleted=True)) == ["gone", "here"]


ALL_AUDITS = AuditFilter()


async def listed(store: Store, wanted: AuditFilter = ALL_AUDITS) -> list[AuditRecord]:
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
        assert await store.audits(ELSEWHERE, ALL_AUDITS) == []

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
            (ALL_AUDITS, [c, b, a]),
            (AuditFilter(identity="a"), [c, a]),
            (AuditFilter(who="bob"), [c, b]),
            (AuditFilter(users=["ann", "team"]), [b, a]),
            (AuditFilter(users=["ann", "team"], who="bob"), [b]),
            (AuditFilter(users=[]), []),
            (AuditFilter(identity="a", users=["ann"]), [a]),
            (AuditFilter(identity="a", users=["ann", "team"], who="ann"), [a]),
            (AuditFilter(identity="a", users=["ann"], who="bob"), []),
            (AuditFilter(identity="b", users=["ann"]), []),
            (AuditFilter(identity="a", who="bob"), [c]),
        ):
            assert await listed(store, wanted) == expected, wanted

    async def test_audits_are_listed_latest_first_page_by_page(self, store: Store) -> None:
        entries = [an_entry(str(number)) for number in range(5)]
        await store.put(SPACE, created=[], changed=[], audit=entries, now=NOW)
        first = await store.audits(SPACE, ALL_AUDITS, limit=2)
        rest = await store.audits(SPACE, ALL_AUDITS, before=AuditCursor(NOW, 2), limit=10)
        assert [audited.record for audited in (*first, *rest)] == entries[::-1]

    async def test_audits_of_some_users_are_listed_page_by_page(self, store: Store) -> None:
        owners = ["ann", "bob", "team"]
        entries = [
            an_entry(str(number), at=NOW + number // 4, user_id=owners[number % 3]) for number in range(12)
        ]
        for at in sorted({entry.at for entry in entries}):
            now = [entry for entry in entries if entry.at == at]
            await store.put(SPACE, created=[], changed=[], audit=now, now=at)
        own = AuditFilter(users=["ann", "team"])
        expected = [entry for entry in reversed(entries) if entry.user_id != "bob"]
        first = await store.audits(SPACE, own, limit=4)
        same = [audited.record.at for audited in first].count(first[-1].record.at)
        rest = await store.audits(SPACE, own, before=AuditCursor(first[-1].record.at, same), limit=10)
        assert [audited.record for audited in (*first, *rest)] == expected

    async def test_audits_are_listed_by_their_time(self, store: Store) -> None:
        for at in (NOW + 2, NOW, NOW + 1):
            await store.put(SPACE, created=[], changed=[], audit=[an_entry(str(at), at=at)], now=NOW)
        listed = [audited.record.at for audited in await store.audits(SPACE, ALL_AUDITS)]
        assert listed == [NOW + 2, NOW + 1, NOW]
        after = await store.audits(SPACE, ALL_AUDITS, before=AuditCursor(NOW + 1, 1))
        assert [audited.record.at for audited in after] == [NOW]

    async def test_an_audit_may_hold_any_characters(self, store: Store) -> None:
        entry = an_entry(who='"a,b}{\\', after=json.dumps({"error": 'NUL \0 "quoted" {braces}'}))
        await store.put(SPACE, created=[], changed=[], audit=[entry], now=NOW)
        assert await listed(store) == [entry]


def _profile_of(*tags: str) -> str:
    """Return the profile of a job with some tags."""
    return json.dumps({"tags": tags})


def _at(name: str, second: int, **fields: object) -> RunRecord:
    """Return a run that stands some seconds after noon."""
    at = NOW + 1000 * second
    run = a_run(name, NOON + second, fire_time=at, created_at=at, **fields)
    return run if run.started_at is None else run._replace(started_at=at)


class TallyContract:
    """Jobs are grouped by definition, tag and state, and runs counted by tag and status."""

    async def test_jobs_are_grouped_by_definition_first_tag_and_state(self, store: Store) -> None:
        await stored(
            store,
            *(a_job(name, profile=_profile_of("x", "y")) for name in "cab"),
            a_job("d", profile=_profile_of("y")),
            a_job("e", paused=1),
            a_job("f", suspended=1),
            a_job("g", remaining=3),
            a_job("h", definition=OTHER),
            a_job("gone", deleted_at=NOW),
        )
        await stored(store, a_job("elsewhere"), namespace=ELSEWHERE)
        found = await store.group_jobs(SPACE, JobFilter(), limit=10)
        assert found == [
            JobGroup(DEFINITION, "x", False, False, 3, "a"),
            JobGroup(DEFINITION, None, True, False, 2, "e"),
            JobGroup(DEFINITION, "y", False, False, 1, "d"),
            JobGroup(DEFINITION, None, False, True, 1, "g"),
            JobGroup(OTHER, None, False, False, 1, "h"),
        ]
        assert await store.group_jobs(SPACE, JobFilter(), limit=1) == found[:1]
        own = JobFilter(definitions=[OTHER], irregular=False)
        assert await store.group_jobs(SPACE, own, limit=9) == [JobGroup(OTHER, None, False, False, 1, "h")]
        singly = await store.group_jobs(SPACE, JobFilter(tag="y"), limit=3, singly=True)
        assert [(group.name, group.tag, group.jobs) for group in singly] == [
            ("a", "x", 1), ("b", "x", 1), ("c", "x", 1),
        ]  # fmt: skip
        irregular = await store.find_jobs(SPACE, JobFilter(irregular=True))
        assert [found.job.identity for found in irregular] == ["g"]

    async def test_long_definitions_are_grouped_without_their_text(self, store: Store) -> None:
        longest, longer, other = (
            json.dumps({"salt": salt * (MAX_GROUPED - len('{"salt": ""}') + more)})
            for salt, more in (("x", 0), ("x", 1), ("y", 1))
        )
        await stored(
            store, a_job("a", definition=longest), a_job("b", definition=longer), a_job("c", definition=other)
        )
        assert await store.group_jobs(SPACE, JobFilter(), limit=9) == [
            JobGroup("", None, False, False, 2, "b"),
            JobGroup(longest, None, False, False, 1, "a"),
        ]

    async def test_runs_are_counted_in_parts_by_tag_and_status(self, store: Store) -> None:
        ownership, elsewhere = await store.acquire(SPACE, "a"), await store.acquire(ELSEWHERE, "a")
        profile, launcher = _profile_of("x"), json.dumps({"user_id": "u"})
        tagged = [a_job(name, profile=profile, launcher=launcher) for name in ("one", "two")]
        await stored(store, *tagged, a_job("three"))
        await stored(store, a_job("one"), namespace=ELSEWHERE)
        await written(store, elsewhere, _at("one", 0))
        await written(
            store,
            ownership,
            *(an_end(_at(name, second)) for name, second in (("one", 0), ("two", 5), ("one", 10))),
            an_end(_at("two", 11))._replace(status=RunStatus.FAILED),
            _at("one", 12, status=RunStatus.FAILED, due_at=NOW),
            _at("one", 13, status=RunStatus.SKIPPED, started_at=None, is_open=0),
            # It is to come, and this one stands outside.
            _at("two", 15, status=RunStatus.PENDING, started_at=None, due_at=NOW + 15_000),
            an_end(_at("two", 20)),
        )
        change = a_change((await store.cases(SPACE, ["three"]))[0].job)
        change.ranges.append(a_range("three", NOON - 600, NOON + 3)._replace(periods=7))
        assert (await store.settle(ownership, [change], now=NOW + 4)) == CLEAN
        span = RunSpan(NOW, NOW + 20_000, 10_000, NOW + 14_000)
        every = [
            TagCount(0, None, RunStatus.MISSED, True, 7, 0, "three"),
            TagCount(0, "x", RunStatus.SUCCESS, False, 2, 2, "two"),
            TagCount(1, "x", RunStatus.SUCCESS, False, 1, 1, "one"),
            TagCount(1, "x", RunStatus.FAILED, False, 1, 1, "two"),
            TagCount(1, "x", RunStatus.PENDING, False, 1, 1, "one"),
            TagCount(1, "x", RunStatus.SKIPPED, False, 1, 0, "one"),
        ]
        assert set(await store.tally_runs(SPACE, JobFilter(), span)) == set(every)
        bad = {count for count in every if count.status is not RunStatus.SUCCESS}
        assert set(await store.tally_runs(SPACE, JobFilter(), span, not_ok=True)) == bad
        assert set(await store.tally_runs(SPACE, JobFilter(users=["u"]), span)) == set(every[1:])
        assert await store.tally_runs(SPACE, JobFilter(tag="unknown"), span) == []
        assert await store.count_made(SPACE, JobFilter(), span) == {0: 2, 1: 4}
        assert await store.count_made(SPACE, JobFilter(users=["u"]), span) == {0: 2, 1: 4}
        assert await store.count_made(SPACE, JobFilter(tag="unknown"), span) == {}

    async def test_the_runs_of_some_users_are_counted_wherever_their_nominal_times_are(
        self, store: Store
    ) -> None:
        """Those of few schedules are read by history, and those of many by record: both find the same."""
        ownership, hour = await store.acquire(SPACE, "a"), 3_600
        few, many = (json.dumps({"user_id": user}) for user in ("few", "many"))
        await stored(store, a_job("own", launcher=few), *(a_job(f"{n}", launcher=many) for n in range(9)))

        def made(name: str, at: int, nominal: int) -> RunRecord:
            then = NOW + 1000 * at
            run = a_run(name, NOON + nominal, fire_time=then, created_at=then)
            return an_end(run._replace(started_at=then))

        times = [
            (10, 10),
            # Long before and long after its record, and apart from it in the interval.
            (20, -72 * hour),
            (30, 72 * hour),
            (40, 3 * hour),
            (5 * hour, 2 * hour),
            # Near its record, and behind the interval.
            (6 * hour - 600, 6 * hour + 1_800),
            # Recorded outside, whatever its nominal time is.
            (-3 * hour, hour),
            (7 * hour, 4 * hour),
        ]
        await written(store, ownership, *(made(name, *each) for name in ("own", "3") for each in times))
        span = RunSpan(NOW, NOW + 6000 * hour, 3000 * hour, NOW + 6000 * hour)
        for user, name in (("few", "own"), ("many", "3")):
            assert set(await store.tally_runs(SPACE, JobFilter(users=[user]), span)) == {
                TagCount(0, None, RunStatus.SUCCESS, False, 4, 4, name),
                TagCount(1, None, RunStatus.SUCCESS, False, 2, 2, name),
            }
