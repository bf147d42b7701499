"""A worker stopped where it stands, beyond its lease: the next takes over, the first starts nothing more."""

import os
import time
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from kron.core.errors import OwnedError
from kron.stores.sqlite.store import SqliteStore
from tests.faults.comparison import Life, faults_of, fenced
from tests.faults.fork_server import ForkServer, seed_of
from tests.faults.ledger import Line
from tests.faults.story import SPACE, Part, Story, policy_of
from tests.waiting import wait_for

ROUNDS = int(os.environ.get("KRON_FAULT_FREEZES", "1"))
PARTS = [
    Part(name="allow", policy=policy_of("allow", "all")),
    Part(name="again", policy=policy_of("allow", "all", on_orphan="restart")),
    Part(name="skip", policy=policy_of("skip", "none")),
    Part(name="keyed", kind="keyed", policy=policy_of("allow", "all")),
]


def begun(story: Story, token: int) -> int:
    """Return the number of calls an owner has started."""
    return sum(line.what == "begin" and line.token == token for line in story.ledger.lines())


def begun_since(story: Story, token: int) -> int:
    """Return the number of calls started by owners with a later token."""
    return sum(line.what == "begin" and line.token > token for line in story.ledger.lines())


def freeze_and_thaw(story: Story, chance: Random, number: int) -> None:
    """Freeze an owner until another has taken over, and check that it starts nothing once thawed.

    A frozen transaction can cost the second its lease too; then the first is owner again, by a new token.
    """
    frozen = story.start(f"frozen-{number}")
    first = story.wait_until_owner(frozen)
    wait_for(lambda: begun(story, first.token) > 0)
    second = story.start(f"second-{number}")
    time.sleep(chance.choice([chance.uniform(0, 0.6), 1.0 - time.time() % 1 + chance.uniform(0, 0.05)]))
    story.freeze(frozen)
    later = story.wait_until_owner(second)
    wait_for(lambda: begun_since(story, first.token) > 0)
    so_far = begun(story, first.token)
    story.thaw(frozen)
    beyond = begun_since(story, first.token)
    wait_for(lambda: begun_since(story, first.token) > beyond)
    # At most the calls that were frozen just before their first line.
    assert begun(story, first.token) - so_far <= len(PARTS)
    story.fork_server.kill(second)
    before = begun_since(story, later.token)
    wait_for(lambda: begun_since(story, later.token) > before)
    story.fork_server.kill(frozen)


def lives_of(lines: list[Line]) -> list[Life]:
    """Return the owners by their tokens; each but the last was killed, or lost its lease."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for line in lines:
        if line.what in ("asked", "begin", "delivered"):
            first.setdefault(line.token, line.at)
            last[line.token] = line.at
    tokens = sorted(first)
    lives = [
        Life(token, first[token], first[token], min(last[token], first[later]))
        for token, later in pairwise(tokens)
    ]
    return [*lives, Life(tokens[-1], first[tokens[-1]], first[tokens[-1]])]


@pytest.mark.slow
@pytest.mark.timeout(300 + 60 * ROUNDS)
async def test_a_frozen_owner_starts_nothing_more_and_nothing_is_lost(
    fork_server: ForkServer, postgres_url: str, tmp_path: Path
) -> None:
    chance = Random(seed_of("freeze"))
    story = Story(fork_server, postgres_url, tmp_path, ttl_ms=600, margin_ms=100)
    await story.create(PARTS)
    for number in range(ROUNDS):
        freeze_and_thaw(story, chance, number)
    story.finish()
    story.lives = lives_of(story.ledger.lines())
    found = [await story.evidence(part) for part in PARTS]
    # A call frozen before its first line is recorded as orphaned.
    tries = [one for evidence in found for row in evidence.rows for one in evidence.tries_of(row)]
    lost = {(one.key, one.attempt) for one in tries if one.result == "orphaned"}
    kept = [line for line in story.ledger.lines() if (line.key, line.attempt) not in lost]
    assert [fault for evidence in found for fault in faults_of(evidence)] == []
    assert fenced(kept) == []
    story.ledger.close()


@pytest.mark.slow
async def test_a_frozen_owner_of_a_file_keeps_it(fork_server: ForkServer, tmp_path: Path) -> None:
    story = Story(fork_server, str(tmp_path / "kron.db"), tmp_path)
    await story.create(PARTS)
    pid = story.start("frozen")
    life = story.wait_until_owner(pid)
    wait_for(lambda: begun(story, life.token) > 0)
    story.freeze(pid)
    other = SqliteStore(str(tmp_path / "kron.db"))
    with pytest.raises(OwnedError, match="another process: stop it first, or wait until it has ended"):
        await other.acquire(SPACE, "other")
    await other.close()
    story.thaw(pid)
    so_far = begun(story, life.token)
    wait_for(lambda: begun(story, life.token) > so_far)
    story.kill(pid)
    story.finish()
    assert [fault for part in PARTS for fault in faults_of(await story.evidence(part))] == []
    story.ledger.close()
