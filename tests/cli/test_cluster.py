"""Commands at a cluster: the same ones as at a service, for KronJobs."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
import yaml

from kron.cli.main import BAD, GOOD, NO, run
from kron.cli.support import cluster as cluster_module
from tests.kubernetes.cluster import Cluster, kronjob, minute, running_cluster
from tests.waiting import wait_for

Kron: TypeAlias = Callable[..., tuple[int, str, str]]


class Background:
    """A cluster with an operator in an event loop of its own thread, while commands run in this one."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.cluster: Cluster | None = None
        self._is_ready, self._is_over = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self.loop.run_until_complete(self._live())
        self.loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(self.loop), return_exceptions=True))
        self.loop.close()

    async def _live(self) -> None:
        async with running_cluster() as cluster:
            self.cluster = cluster
            await cluster.start()
            await cluster.add(kronjob(policy={"deadline": "never"}))
            await cluster.advance(minute(2, 10))
            await cluster.eventually(lambda: len(cluster.periods()) == 2)
            self._is_ready.set()
            await self._is_over.wait()

    def start(self) -> Cluster:
        self._thread.start()
        wait_for(self._is_ready.is_set)
        assert self.cluster is not None
        return self.cluster

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._is_over.set)
        self._thread.join()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    background = Background()
    cluster = background.start()
    config = {
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": cluster.server.url}}],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("KRON_SERVER", "kubernetes")
    yield cluster
    background.stop()


@pytest.fixture
def kron(place: Cluster, capsys: pytest.CaptureFixture[str]) -> Kron:
    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(words)
        return code, *capsys.readouterr()

    return call


def test_a_run_is_requested_once_and_recorded(place: Cluster, kron: Kron) -> None:
    code, out, _ = kron("run", "default/a", "--request-id", "deploy-17")
    assert code == GOOD
    assert out.startswith(("default/a: PENDING, key ", "default/a: STARTED, key "))
    assert place.server.object("kronjobs", "a")["metadata"]["annotations"]["kron.io/run-now"] == "deploy-17"
    assert kron("run", "default/a", "--request-id", "deploy-17")[1].split()[-1] == out.split()[-1]

    def manual() -> int:
        kinds = [each["metadata"]["labels"]["kron.io/kind"] for each in place.server.objects("jobs")]
        return kinds.count("manual")

    assert wait_for(manual) == 1


def test_a_pause_has_its_reason_and_ends_with_a_resume(place: Cluster, kron: Kron) -> None:
    assert kron("pause", "default/a", "--reason", "the target is down")[:2] == (GOOD, "default/a: paused\n")
    assert place.status()["paused"] == "the target is down"
    assert "paused" in kron("status")[1]
    code, out, _ = kron("resume", "default/a", "--yes")
    assert code == GOOD
    assert "default/a: resumed, next run" in out
    assert "paused" not in place.status()
    code, _, error = kron("pause", "default/a", "--until", "2026-06-01T12:00Z")
    assert code == BAD
    assert "a KronJob is paused until it is resumed" in error


def test_the_records_of_the_cluster_are_answered(kron: Kron) -> None:
    code, out, _ = kron("why", "default/a", "2026-06-01T12:02:00Z")
    assert code == GOOD
    assert "Did not run: another run of the job was active." in out
    _, out, _ = kron("runs", "default/a")
    assert ["SKIPPED" in out, "STARTED" in out] == [True, True]
    assert "default/a" in kron("status")[1]


def test_what_is_not_there_or_not_possible_is_said(
    place: Cluster, kron: Kron, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, error = kron("run", "default/b")
    assert code == NO
    assert error == 'kron: There is no schedule "default/b"; did you mean default/a?\n'
    code, _, error = kron("schedules", "delete", "default/a")
    assert code == BAD
    assert cluster_module.BY_KUBECTL in error
    monkeypatch.setattr(cluster_module, "WAIT_S", 0.2)
    place.operators[-1][0].controller.kill()
    code, out, _ = kron("run", "default/a")
    assert code == GOOD
    assert out.startswith("default/a: requested, key ")
