"""Real workers killed in a loop: afterwards every period has its one outcome, and nothing ran twice."""

import asyncio
import os
import time
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from tests.faults.comparison import faults_of, fenced
from tests.faults.executor import Executor, serving
from tests.faults.fork_server import ForkServer, seed_of
from tests.faults.story import Part, Story, policy_of

pytestmark = pytest.mark.slow

# The number of kills per store in the slow tier.
KILLS = int(os.environ.get("KRON_FAULT_KILLS", "26"))
# How long a worker lives once it owns the jobs, and how close after a full second it often dies.
LEAST_LIFE_S, MOST_LIFE_S, CLOSE_S = 0.02, 0.25, 0.08
# The share of workers that die close to a full second, or before they have taken over.
CLOSE, EARLY = 0.25, 0.1
# The share of downtimes between two workers, and their length.
OFF, LEAST_OFF_MS, MOST_OFF_MS = 0.1, 61_000, 400_000
HALF_SECOND = timedelta(milliseconds=500)

WRITES = (
    """printf '["%s","%s","%s",%s,%s,-1]\\n' """
    '{} "$KRON_IDENTITY" "$KRON_IDEMPOTENCY_KEY" "$KRON_ATTEMPT" "$KRON_FENCING_TOKEN" >> {}'
)


def parts_of(url: str, ledger: Path) -> list[Part]:
    """Return the jobs of the test: every overlap, every catch-up, every way to start something."""
    again = {"on_orphan": "restart"}
    shell = f"{WRITES.format('begin', ledger)}; sleep 0.3; {WRITES.format('end', ledger)}"
    return [
        Part(name="allow-all", policy=policy_of("allow", "all")),
        Part(name="allow-once-again", policy=policy_of("allow", "once", **again)),
        Part(name="allow-none-retry", policy=policy_of("allow", "none", retry_delay=HALF_SECOND)),
        Part(name="skip-none", policy=policy_of("skip", "none")),
        Part(name="skip-all-again", policy=policy_of("skip", "all", **again)),
        Part(name="skip-retry", every_s=3, policy=policy_of("skip", "once", retry_delay=timedelta(0))),
        Part(name="queue-all", policy=policy_of("queue", "all")),
        Part(name="queue-once-again", every_s=2, policy=policy_of("queue", "once", **again)),
        Part(name="buffer-none-again", policy=policy_of("buffer_one", "none", **again)),
        Part(name="buffer-all", every_s=2, policy=policy_of("buffer_one", "all", retry_delay=HALF_SECOND)),
        Part(name="late", policy=policy_of("allow", "all", deadline=timedelta(seconds=1))),
        Part(name="keyed-all", kind="keyed", policy=policy_of("allow", "all")),
        Part(name="keyed-none", kind="keyed", policy=policy_of("skip", "none", **again)),
        Part(
            name="http-all",
            kind="http",
            policy=policy_of("allow", "all"),
            launcher={"kind": "http", "url": f"{url}http-all"},
        ),
        Part(
            name="process-skip",
            kind="process",
            policy=policy_of("skip", "once", **again),
            launcher={"kind": "process", "command": shell, "survive": True},
        ),
    ]


def kill_again_and_again(story: Story, executor: Executor, chance: Random, kills: int) -> None:
    """Start a worker and kill it a moment later, often just when periods are due."""
    for number in range(kills):
        if chance.random() < OFF:
            story.ahead_ms += chance.randint(LEAST_OFF_MS, MOST_OFF_MS)
        executor.ahead_ms = story.ahead_ms
        pid = story.start(f"worker-{number}")
        if chance.random() >= EARLY:
            story.wait_until_owner(pid)
        rest_s = chance.uniform(LEAST_LIFE_S, MOST_LIFE_S)
        if chance.random() < CLOSE:
            rest_s = 1.0 - story.now() % 1000 / 1000 + chance.uniform(0, CLOSE_S)
        time.sleep(rest_s)
        story.kill(pid)
    story.finish()


async def faults_after(
    kills: int, fork_server: ForkServer, store_url: str, folder: Path, seed: str
) -> list[str]:
    """Return every fault after all the kills."""
    story = Story(fork_server, store_url, folder)
    executor = Executor(story.ledger)
    with serving(executor) as url:
        parts = parts_of(url, story.ledger.path)
        await story.create(parts)
        await asyncio.to_thread(kill_again_and_again, story, executor, Random(seed), kills)
    assert sum(life.killed_at is not None for life in story.lives) >= kills / 2
    # A request of one worker may arrive after the next has started; this executor ignores tokens.
    own = [line for line in story.ledger.lines() if not line.identity.startswith("http")]
    faults = [fault for part in parts for fault in faults_of(await story.evidence(part))]
    story.ledger.close()
    return faults + fenced(own)


@pytest.mark.timeout(300 + 5 * KILLS)
@pytest.mark.parametrize("kills", [4, pytest.param(KILLS, marks=pytest.mark.slow)])
async def test_killed_again_and_again_nothing_is_lost_and_nothing_is_doubled(
    kills: int, fork_server: ForkServer, postgres_url: str, tmp_path: Path
) -> None:
    """Test both stores at once, because a worker mostly waits."""
    seed = seed_of("kill")
    in_file, in_database = await asyncio.gather(
        faults_after(kills, fork_server, str(tmp_path / "kron.db"), tmp_path / "sqlite", f"{seed} sqlite"),
        faults_after(kills, fork_server, postgres_url, tmp_path / "postgres", f"{seed} postgres"),
    )
    assert in_file == []
    assert in_database == []
