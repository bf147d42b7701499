"""The examples for FastAPI and Django run, as real processes."""

import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

import kron
from tests.docs.page import blocks_of
from tests.waiting import PATIENCE_S, wait_for

ROOT = Path(__file__).parents[2]
SITE = ROOT / "examples" / "django_site"
pytestmark = pytest.mark.slow


@contextmanager
def process(folder: Path, *words: str, cwd: Path = ROOT, **settings: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program with its output in a file, and end it."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **settings}
    with (folder / "output.txt").open("w") as output:
        started = subprocess.Popen(
            [sys.executable, *words], cwd=cwd, env=environment, stdout=output, stderr=output, text=True
        )
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def output_of(folder: Path) -> str:
    return (folder / "output.txt").read_text(encoding="utf-8")


def test_a_fastapi_program_runs_lists_and_explains_its_jobs(tmp_path: Path) -> None:
    state = f"sqlite:///{tmp_path}/shop.db"
    words = ("-m", "uvicorn", "examples.fastapi_app:app", "--port", "0")
    with process(tmp_path, *words, SHOP_STATE=state) as server:
        running = wait_for(
            lambda: re.search(r"running on (http://[\d.:]+)", output_of(tmp_path)),
            lambda: output_of(tmp_path),
        )
        with httpx.Client(base_url=running[1], timeout=PATIENCE_S) as client:
            jobs = client.get("/jobs").json()
            assert set(jobs) == {"refresh_prices", "send_report"}
            assert all(start.endswith("Z") for start in jobs.values())
            for name in jobs:
                assert client.post(f"/jobs/{name}/run").status_code == 202
                wait_for(
                    lambda name=name: client.get(f"/jobs/{name}/runs").json()[0]["status"] == "SUCCESS"  # type: ignore[misc]
                )
            assert client.get("/jobs/send_report/why").json()[0].startswith('the schedule is "30 20 *')
            assert client.post("/jobs/unknown/run").status_code == 404
        server.send_signal(signal.SIGTERM)
        server.wait(PATIENCE_S)
    assert "Application shutdown complete" in output_of(tmp_path)
    # The lease is released, so another process may have the jobs at once.
    with kron.Runner(state) as runner:
        assert [job.identity for job in runner.wait(runner.jobs())] == sorted(jobs)


def test_of_several_server_processes_one_has_the_jobs_and_all_can_list_them(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "embed.md").read_text(encoding="utf-8")
    (program,) = (block.text for block in blocks_of(page) if block.file == "servers.py")
    (tmp_path / "servers.py").write_text(program, encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    words = ("-m", "uvicorn", "servers:app", "--workers", "2", "--port", port)
    with process(tmp_path, *words, cwd=tmp_path) as server:
        wait_for(
            lambda: output_of(tmp_path).count("Application startup complete") == 2,
            lambda: output_of(tmp_path),
        )
        url = f"http://127.0.0.1:{port}/runs"
        # A new connection for each request, so that both processes answer.
        wait_for(lambda: any(run["status"] == "SUCCESS" for run in httpx.get(url, timeout=PATIENCE_S).json()))
        for _ in range(10):
            assert httpx.get(url, timeout=PATIENCE_S).status_code == 200
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE_S) in (0, -signal.SIGTERM)
    assert output_of(tmp_path).count("Application shutdown complete") == 2
    with kron.Runner(f"sqlite:///{tmp_path}/shop.db") as runner:
        runs = runner.wait(runner.runs("refresh_prices", limit=1000))
    assert len({run.nominal_time for run in runs}) == len(runs)


def reports_of(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / "shop.db", timeout=PATIENCE_S)) as database:
        return [row[0] for row in database.execute("SELECT key FROM shop_report")]


def test_a_django_command_runs_jobs_that_use_the_database_until_it_is_told_to_end(tmp_path: Path) -> None:
    settings = {"SHOP_FOLDER": str(tmp_path), "SHOP_REPORT_SCHEDULE": "* * * * * *"}
    with process(tmp_path, "manage.py", "migrate", cwd=SITE, **settings) as migrating:
        assert migrating.wait(PATIENCE_S) == 0, output_of(tmp_path)
    with process(tmp_path, "manage.py", "runjobs", cwd=SITE, **settings) as running:
        wait_for(lambda: len(reports_of(tmp_path)) >= 2, lambda: output_of(tmp_path))
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE_S) == 0
    assert output_of(tmp_path).startswith("write_report: next start 20")
    with kron.Runner(f"sqlite:///{tmp_path}/kron.db", name="shop") as runner:
        runs = runner.wait(runner.runs("write_report"))
    ended = [run for run in runs if run.ended_at is not None]
    assert {run.status for run in ended} == {"SUCCESS"}
    assert {run.key for run in ended} == set(reports_of(tmp_path))
