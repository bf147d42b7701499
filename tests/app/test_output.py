"""The outputs of runs are removed with their records, and the oldest above a limit; running ones stay."""

import os
from pathlib import Path

from kron.app.output import RunOutputs
from kron.launchers.process.supervisor import write_record


def an_output(folder: Path, key: str, *, state: str = "ended", size: int = 100, at: int = 0) -> Path:
    """Write the record and the output of a run, and return the path of the output."""
    place = folder / "logs" / key[:2] / f"{key}.1.run"
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("wb") as file:
        write_record(file.fileno(), {"state": state, "identity": "a", "nominal_time": 60})
    log = place.with_suffix(".log")
    log.write_bytes(b"x" * size)
    os.utime(log, (at, at))
    return log


async def test_outputs_go_with_the_records_of_their_runs(tmp_path: Path) -> None:
    kept, gone = an_output(tmp_path, "aa1"), an_output(tmp_path, "bb2")
    running = an_output(tmp_path, "cc3", state="running")
    asked = []

    async def known(identity: str, since: int) -> set[str]:
        asked.append((identity, since))
        return {"aa1"}

    assert await RunOutputs(tmp_path, max_bytes=1_000).prune(known) == 1
    assert asked == [("a", 60)]
    assert [path.exists() for path in (kept, gone, running)] == [True, False, True]
    assert not gone.with_suffix(".run").exists()
    assert kept.with_suffix(".run").exists()


async def test_the_oldest_outputs_go_when_all_take_too_much(tmp_path: Path) -> None:
    logs = [an_output(tmp_path, f"{number}0", at=number) for number in (3, 1, 2)]

    async def known(_identity: str, _since: int) -> set[str]:
        return {"10", "20", "30"}

    assert await RunOutputs(tmp_path, max_bytes=250).prune(known) == 1
    assert [log.exists() for log in logs] == [True, False, True]
    assert logs[1].with_suffix(".run").exists()
