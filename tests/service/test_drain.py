"""A worker that a person drains: it hands over, starts nothing more, and works again when it is resumed."""

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from kron.cli.main import run
from kron.core.shard import SHARDS
from tests.service.executor import executing
from tests.service.server import process, serving
from tests.service.test_worker import SECONDLY, upsert
from tests.waiting import wait_for

Kron = Callable[..., tuple[int, str]]
FAST = {"KRON_TICK_MS": "50", "KRON_LEASE_MS": "2000"}


@pytest.fixture
def kron(capfd: pytest.CaptureFixture[str]) -> Kron:
    """Return a function that runs a command, and returns its exit code and its output."""

    def call(*words: str) -> tuple[int, str]:
        capfd.readouterr()
        code = run(words)
        return code, "".join(capfd.readouterr())

    return call


def states(client: httpx.Client) -> dict[str, tuple[str, int]]:
    """Return the state and the number of shards of each worker."""
    listed = client.get("/workers").raise_for_status().json()["workers"]
    return {each["worker"]: (each["state"], each["shard_count"]) for each in listed}


def drain(client: httpx.Client, worker: str, value: bool) -> None:
    client.post("/workers/drain", json={"worker": worker, "drain": value}).raise_for_status()


@pytest.mark.slow
def test_a_drained_worker_hands_its_shards_to_the_others_until_it_is_resumed(
    postgres_url: str, tmp_path: Path, kron: Kron
) -> None:
    settings = {**FAST, "KRON_WORKERS": "shared", "KRON_STORE": postgres_url}
    with executing() as executor, serving(tmp_path, **settings) as (client, _):
        document = {**SECONDLY, "launcher": {"kind": "http", "url": executor.url}}
        client.post("/schedules/upsert", json=document).raise_for_status()
        (first,) = wait_for(lambda: states(client))
        with process("worker", folder=tmp_path, **settings):
            half = ("active", SHARDS // 2)
            wait_for(lambda: list(states(client).values()) == [half, half])
            (other,) = states(client).keys() - {first}
            drain(client, first, True)
            wait_for(lambda: states(client) == {first: ("drained", 0), other: ("active", SHARDS)})
            before = len(executor.sent)
            wait_for(lambda: len(executor.sent) > before + 1)
            # A second request does not resume it, and the other worker cannot take it back.
            drain(client, first, True)
            assert client.get("/readyz").json()["worker"] == "drained"
            drain(client, first, False)
            wait_for(lambda: states(client) == {first: half, other: half})
    keys = executor.keys()
    assert len(keys) == len(set(keys))
    code, text = kron("audit", "--json", "--store", postgres_url)
    assert code == 0, text
    entries = [(entry["action"], entry["name"]) for entry in json.loads(text)["entries"]]
    assert entries[:2] == [("end_drain", first), ("drain", first)]
    assert len([entry for entry in entries if "drain" in entry[0]]) == 2


@pytest.mark.slow
def test_on_a_file_the_worker_that_stands_by_takes_over_and_the_command_line_does_the_same(
    tmp_path: Path, kron: Kron
) -> None:
    url = f"sqlite:///{tmp_path}/kron.db"
    document = {**SECONDLY, "launcher": {"kind": "log", "message": "x"}}

    def only(state: str) -> Callable[[], str | None]:
        return lambda: next((name for name, (each, _) in states(client).items() if each == state), None)

    with serving(tmp_path, **FAST, KRON_STORE=url) as (client, _):
        client.post("/schedules/upsert", json=document).raise_for_status()
        first = wait_for(only("active"))
        code, text = kron("workers", "--drain", first, "--store", url)
        assert (code, text.partition(", now")[0]) == (0, f"{first}: drain requested")
        wait_for(lambda: states(client) == {first: ("drained", 0)})
        # No worker runs: the page of a period says so, and no period is lost.
        with process("worker", folder=tmp_path, **FAST, KRON_STORE=url):
            second = wait_for(only("active"))
            assert second != first
            drain(client, second, True)
            wait_for(lambda: set(states(client).values()) == {("drained", 0)})
            assert kron("workers", "--resume", first, "--store", url)[0] == 0
            wait_for(lambda: states(client).get(first) == ("active", SHARDS))
    code, text = kron("workers", "--json", "--store", url)
    assert (code, second in {each["worker"] for each in json.loads(text)["workers"]}) == (0, True)


def test_a_worker_that_nobody_knows_cannot_be_drained(tmp_path: Path, kron: Kron) -> None:
    url = f"sqlite:///{tmp_path}/kron.db"
    upsert(url, SECONDLY)
    code, text = kron("workers", "--drain", "nobody", "--store", url)
    assert (code, 'There is no worker "nobody"' in text) == (2, True)
    code, text = kron("workers", "--drain", "a", "--resume", "b", "--store", url)
    assert (code, "either --drain or --resume" in text) == (2, True)
    code, text = kron("workers", "--store", url)
    assert (code, "no worker holds a lease" in text) == (0, True)
