"""The outputs of runs are removed with their records, and the oldest above a limit; running ones stay."""

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kron.app.output import KeptOutput, RunOutputs, displaced_outputs
from kron.core.plan.record import RunRecord
from kron.launchers.process.host import boot_of
from kron.launchers.process.supervisor.record import write_record
from tests.launchers.ear import a_launch
from tests.strategies import law


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


def a_run(key: str) -> RunRecord:
    return a_launch().run._replace(key=key)


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


def test_a_run_without_a_record_has_the_output_of_its_files(tmp_path: Path) -> None:
    outputs, run = RunOutputs(tmp_path, max_bytes=1_000), a_run("aa1")
    assert outputs.read(run, 1) is None
    (tmp_path / boot_of()).mkdir()
    (tmp_path / boot_of() / "aa1.1.out").write_bytes(b"so far")
    running = outputs.read(run, 1)
    assert running is not None
    assert (running.text, running.ended) == (b"so far", False)


def test_a_reader_that_has_seen_all_of_an_output_sees_nothing_of_it_again(tmp_path: Path) -> None:
    outputs, run = RunOutputs(tmp_path, max_bytes=1_000), a_run("aa1")
    outputs.keep(run, b"x" * 100)
    for offset, rest in ((0, 100), (99, 1), (100, 0), (101, 0)):
        output = outputs.read(run, 1, offset)
        assert output is not None
        assert len(output.text) == rest


async def test_the_oldest_outputs_go_when_all_take_too_much(tmp_path: Path) -> None:
    logs = [an_output(tmp_path, f"{number}0", at=number) for number in (3, 1, 2)]

    async def known(_identity: str, _since: int) -> set[str]:
        return {"10", "20", "30"}

    assert await RunOutputs(tmp_path, max_bytes=250).prune(known) == 1
    assert [log.exists() for log in logs] == [True, False, True]
    assert logs[1].with_suffix(".run").exists()


def test_a_tenant_displaces_its_own_outputs_and_not_those_of_others(tmp_path: Path) -> None:
    outputs = RunOutputs(tmp_path, max_bytes=40_000)
    runs = {f"{number:02}{tenant}": tenant for number in range(10) for tenant in ("ann", "bob")}
    for at, (key, tenant) in enumerate(runs.items()):
        # Random bytes stay as long as they are; those of one tenant are ten times as long.
        outputs.keep(a_run(key), os.urandom(500 if tenant == "ann" else 5_000), tenant)
        (log,) = tmp_path.glob(f"logs/*/{key}.1.log")
        os.utime(log, (at, at))
    assert outputs.prune_older(None) == 4
    left = [path.name.partition(".")[0] for path in tmp_path.glob("logs/*/*.log")]
    gone = [key for key in runs if key not in left]
    assert gone == ["00bob", "01bob", "02bob", "03bob"], "the oldest of the tenant with the most"
    output = outputs.read(a_run("09bob"), 1)
    assert output is not None
    assert len(output.text) == 5_000


@given(
    sizes=st.lists(st.lists(st.integers(0, 100), min_size=1, max_size=8), max_size=6),
    excess=st.integers(0, 1_000),
)
@law(200)
def test_what_is_displaced_is_enough_and_leaves_the_small_tenants_alone(
    sizes: list[list[int]], excess: int
) -> None:
    of_tenants = [
        [KeptOutput(number, size, Path(f"{tenant}/{number}")) for number, size in enumerate(own)]
        for tenant, own in enumerate(sizes)
    ]
    displaced = displaced_outputs(of_tenants, excess)
    total = sum(map(sum, sizes))
    assert sum(each.size for each in displaced) >= min(excess, total)
    kept = [[each for each in own if each not in displaced] for own in of_tenants]
    left = [sum(each.size for each in own) for own in kept]
    for own, mine in zip(of_tenants, kept, strict=True):
        if len(mine) < len(own):
            # Before its last one went, no other tenant had more.
            last = max((each for each in own if each not in mine), key=lambda each: each.at)
            assert sum(each.size for each in mine) + last.size >= max(left)
            assert mine == own[len(own) - len(mine) :], "the oldest go first"
