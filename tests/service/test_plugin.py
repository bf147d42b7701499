"""A launcher of another package: the one the documentation shows, installed for real, starts real runs."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.docs.page import ROOT, blocks_of
from tests.service.server import serving
from tests.service.test_http import problem_of
from tests.waiting import wait_for

PAGE = (ROOT / "docs" / "how-to" / "write-a-launcher.md").read_text(encoding="utf-8")
BROKEN = "import nothing_of_that_name"
REPORTING = "class Launcher:\n    fields, reports = (), True\n    async def start(self, start): ..."


def install(folder: Path, modules: dict[str, str], points: dict[str, str]) -> None:
    """Put a package into a folder as an installer does: its modules and its metadata."""
    record = folder / f"{Path(next(iter(modules))).stem}-1.0.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {Path(next(iter(modules))).stem}\nVersion: 1.0\n"
    )
    lines = [f"{name} = {place}" for name, place in points.items()]
    (record / "entry_points.txt").write_text("\n".join(["[kron.launchers]", *lines, ""]))
    for name, text in modules.items():
        (folder / name).write_text(text)


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a process that has the page's package, and a broken one, installed."""
    files = {block.file: block.text for block in blocks_of(PAGE) if block.file}
    points = tomllib.loads(files["pyproject.toml"])["project"]["entry-points"]["kron.launchers"]
    modules = {"kron_queue.py": files["kron_queue.py"], "kron_broken.py": BROKEN}
    install(tmp_path / "site", modules, {**points, "broken": "kron_broken:Launcher", "empty": "json:loads"})
    path = [str(tmp_path / "site"), *filter(None, sys.path)]
    return {"PYTHONPATH": ":".join(path), "KRON_ALLOWED_LAUNCHERS": "queue,broken,empty"}


def schedule(**launcher: object) -> dict[str, object]:
    return {"schedule_id": "q", "cron_expr": "0 0 1 1 *", "timezone": "UTC", "launcher": launcher}


@pytest.mark.slow
def test_a_schedule_is_started_by_an_installed_launcher(variables: dict[str, str], tmp_path: Path) -> None:
    with serving(tmp_path, **variables) as (client, server):
        assert (
            client.post("/schedules/upsert", json=schedule(kind="queue", queue="nightly")).status_code == 200
        )
        key = client.post("/schedules/q/run").json()["idempotency_key"]

        def runs(status: str) -> list[dict[str, object]]:
            found: list[dict[str, object]] = client.get("/schedules/q/runs").json()["runs"]
            return [run for run in found if run["status"] == status and (run["run_id"] or run["error"])]

        wait_for(lambda: runs("ENQUEUED"))
        (run,) = runs("ENQUEUED")
        assert run["run_id"] == f"nightly/{key[:8]}"
        assert (tmp_path / "nightly.queue").read_text().split() == [run["run_at"], key]
        # What its class calls final is not tried again.
        client.post("/schedules/upsert", json=schedule(kind="queue", queue="not one word"))
        client.post("/schedules/q/run")
        wait_for(lambda: runs("FAILED"))
        (run,) = runs("FAILED")
        assert (run["result"], run["error"]) == (
            "launch_failed",
            "the launcher queue failed: ValueError: a queue's name is one word",
        )
        assert client.get("/readyz").json()["worker"] == "running"
        # What is broken costs its own kind alone, and the log says why.
        assert "nothing_of_that_name" in "".join(server.log)
        for launcher, path, reason in (
            ({"kind": "queue", "queue": "a", "quue": 1}, "launcher.quue", "did you mean queue?"),
            ({"kind": "broken"}, "launcher.kind", "cannot be loaded"),
            ({"kind": "empty"}, "launcher.kind", "has no fields, or no start"),
            ({"kind": "queu"}, "launcher.kind", "did you mean queue?"),
        ):
            problem = problem_of(
                client.post("/schedules/upsert", json=schedule(**launcher)), 400, "invalid_schedule"
            )
            problems = problem["problems"]
            assert isinstance(problems, list)
            assert [each["path"] for each in problems] == [path]
            assert reason in problems[0]["reason"]


@pytest.mark.slow
def test_without_the_package_its_kind_is_unknown(tmp_path: Path) -> None:
    with serving(tmp_path) as (client, _):
        answer = client.post("/schedules/upsert", json=schedule(kind="queue", queue="nightly"))
        assert "unknown kind" in str(problem_of(answer, 400, "invalid_schedule")["detail"])


def test_nothing_is_loaded_before_it_is_asked_for(variables: dict[str, str], tmp_path: Path) -> None:
    code = (
        "import sys\nfrom kron.app.launchers import read_launcher\n"
        "read_launcher({'kind': 'http', 'url': 'http://h/'})\nprint('kron_queue' in sys.modules)\n"
        "read_launcher({'kind': 'queue', 'queue': 'a'})\nprint('kron_queue' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "True"]


def test_a_launcher_reports_ends_only_if_its_class_says_so(variables: dict[str, str], tmp_path: Path) -> None:
    install(
        tmp_path / "site" / "more",
        {"kron_reporting.py": REPORTING},
        {"reporting": "kron_reporting:Launcher"},
    )
    path = f"{tmp_path / 'site' / 'more'}:{variables['PYTHONPATH']}"
    code = (
        "from kron.app.launchers import traits_by_kind\nknown = traits_by_kind()\n"
        "print(*(known[kind].reports for kind in ('queue', 'reporting', 'broken')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False", "True", "False"]
