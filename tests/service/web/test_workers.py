"""The page of workers: shards as ranges, and one sentence on the health of leases."""

import pytest

from kron.core.plan.query import WorkerLease
from kron.core.shard import SHARDS
from kron.fronts.service.web.render import render
from kron.fronts.service.web.workers import lease_health, workers_page
from kron.fronts.service.workers import ranges_of

NOW = 1_790_000_000_000
ALL = tuple(range(SHARDS))


@pytest.mark.parametrize(
    ("shards", "text"),
    [((), ""), ((7,), "7"), ((3, 1, 2), "1-3"), ((0, 1, 3, 5, 6), "0-1, 3, 5-6"), (ALL, f"0-{SHARDS - 1}")],
)
def test_consecutive_shards_are_a_range(shards: tuple[int, ...], text: str) -> None:
    assert ranges_of(shards) == text


@pytest.mark.parametrize(
    ("leases", "look", "sentence"),
    [
        pytest.param([], "bad", "no worker holds a lease", id="none"),
        pytest.param([WorkerLease("a", ALL, True)], "ok", f"1 worker with all {SHARDS} shards", id="one"),
        pytest.param(
            [WorkerLease("a", ALL[:9], True), WorkerLease("b", ALL[9:], True), WorkerLease("c", (), True)],
            "ok",
            f"2 workers with all {SHARDS} shards",
            id="two and one that waits",
        ),
        pytest.param(
            [WorkerLease("a", ALL[:9], True), WorkerLease("b", ALL[9:], False)],
            "bad",
            f"1 worker with 9 of {SHARDS} shards, the others have none",
            id="one expired",
        ),
        pytest.param([WorkerLease("a", ALL, False)], "bad", "no worker holds a lease", id="expired"),
    ],
)
def test_leases_are_healthy_while_every_shard_has_a_living_worker(
    leases: list[WorkerLease], look: str, sentence: str
) -> None:
    assert lease_health(leases) == (look, sentence)


def test_a_worker_has_its_state_its_heartbeat_and_its_version() -> None:
    leases = [
        WorkerLease("<alive>", ALL[:60], True, NOW - 4_000, NOW + 26_000, NOW - 7_200_000, "1.2.3"),
        WorkerLease("dead", ALL[60:], False, NOW - 60_000, NOW - 30_000),
        WorkerLease("idle", (), True, NOW, NOW + 30_000),
    ]
    page = workers_page(leases, NOW)
    assert [(row.state, row.look) for row in page.rows] == [
        ("active", "ok"), ("expired", "bad"), ("waiting", "wait"),
    ]  # fmt: skip
    text = render("workers.html", it=page, now="")
    for part in ("&lt;alive&gt;", "4 s ago", "in 26 s", "2 h ago", "<code>1.2.3</code>", "0-59", "60-63"):
        assert part in text
