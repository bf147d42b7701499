"""When krond reads its files again: what counts as a change, and a load that fails."""

import asyncio
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kron.cli.support.job_folder import NO_FILE, load, stamp
from kron.fronts.daemon import daemon as daemon_module
from kron.fronts.daemon.daemon import FIRST_LOAD, Daemon, DaemonOptions, only_instance
from kron.fronts.daemon.job_set import Reloaded
from kron.fronts.daemon.place import StateFolder
from kron.launchers.process.host import is_alive
from kron.launchers.process.supervisor.record import started_of
from tests.daemon.krond import Krond
from tests.waiting import until, wait_for

NOTHING = Reloaded([], [], [], [], 0)


def no_handler(_daemon: Daemon) -> None:
    """Answer no requests."""


def _touch(file: Path) -> None:
    os.utime(file, ns=(1, 1))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_touch, id="written"),
        pytest.param(lambda file: file.chmod(0o600), id="its permissions"),
        pytest.param(lambda file: file.rename(file.with_suffix(".json")), id="renamed"),
        pytest.param(lambda file: file.unlink(), id="removed"),
        pytest.param(
            lambda file: file.parent.chmod(0o755),
            id="the permissions of its folder",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root looks at them"),
        ),
    ],
)
def test_a_change_of_a_file_or_of_who_may_write_it_is_seen(
    change: Callable[[Path], object], tmp_path: Path
) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    folder.chmod(0o777)
    file = folder / "a.yaml"
    file.write_text("jobs: []")
    file.chmod(0o666)
    before = stamp([str(folder)])
    assert stamp([str(folder)]) == before
    change(file)
    assert stamp([str(folder)]) != before


def test_a_pipe_among_the_files_stops_no_other(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text('{identity: a, schedule: "0 0 1 1 *", command: "true"}')
    # Its reading would wait for a writer.
    os.mkfifo(tmp_path / "b.yaml")
    loaded = load([str(tmp_path)])
    assert [job.identity for found in loaded.jobs.values() for job in found] == ["a"]
    assert loaded.problems == {str(tmp_path / "b.yaml"): [f"{tmp_path / 'b.yaml'}: {NO_FILE}"]}


@pytest.mark.slow
def test_no_module_of_the_folder_that_krond_is_started_in_is_loaded(tmp_path: Path) -> None:
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    # Everyone may write such a file to /tmp.
    (hostile / "sqlite3.py").write_text("raise SystemExit('loaded')")
    krond = Krond(tmp_path / "krond")
    krond.write("a.yaml", '{identity: a, schedule: "0 0 1 1 *", command: "true"}')
    krond.start(cwd=hostile)
    assert krond.names() == ["a"], krond.log_text()
    assert krond.stop() == 0


@pytest.mark.slow
def test_a_load_ends_with_its_krond_and_applies_nothing_after_the_load_of_the_next_one(
    tmp_path: Path,
) -> None:
    krond = Krond(tmp_path / "krond")
    jobs = "".join(f' - {{name: j{number}, schedule: "0 0 1 1 *", command: id}}\n' for number in range(5_000))
    krond.write("a.yaml", f"jobs:\n{jobs}")
    krond.start(wait=False)
    children = Path(f"/proc/{krond.pid}/task/{krond.pid}/children")
    (loader,) = wait_for(lambda: children.read_text().split(), krond.log_text)
    started = started_of(int(loader))
    # Files are read in a thread.
    wait_for(lambda: len(os.listdir(f"/proc/{loader}/task")) > 1, krond.log_text)
    krond.kill()
    wait_for(lambda: not is_alive(int(loader), started))
    assert krond.log_text() == ""
    krond.write("a.yaml", '{identity: a, schedule: "0 0 1 1 *", command: "true"}')
    krond.start()
    assert krond.names() == ["a"]
    assert krond.stop() == 0


async def test_a_load_that_fails_is_tried_again_and_starts_what_is_for_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(daemon_module, "LOOK_S", 0.02)
    monkeypatch.setattr(daemon_module, "MAX_LOOK_S", 0.05)
    loader, answer, words = (tmp_path / name for name in ("loader", "answer", "words"))
    words.touch()
    files = ["first"]
    options = DaemonOptions(
        place=StateFolder(tmp_path / "state"), loader=[str(loader)], stamp=lambda: list(files)
    )
    with only_instance(options.place):
        daemon = Daemon(options, no_handler)  # type: ignore[arg-type]  # nothing is asked
        # No loader can be started at all, and then one that fails, as on a full disk.
        assert not await daemon._reload_safely()
        watcher = asyncio.create_task(daemon._watch_files())
        await until(lambda: caplog.text.count("No such file") > 2)
        new = tmp_path / "new"
        new.write_text(f'#!/bin/sh\necho "loaded $*" >> {words}\ncat {answer}\n')
        new.chmod(0o700)
        new.rename(loader)
        await until(lambda: "were not applied" in caplog.text)
        answer.write_text(json.dumps(NOTHING._asdict()))
        await until(lambda: daemon._loaded == ["first"])
        loads = words.read_text().splitlines()
        assert set(loads) == {f"loaded {FIRST_LOAD}"}
        files.append("second")
        await until(lambda: daemon._loaded == ["first", "second"])
        assert words.read_text().splitlines() == [*loads, "loaded "]
        watcher.cancel()
        with suppress(asyncio.CancelledError):
            await watcher
        await daemon.store.close()
