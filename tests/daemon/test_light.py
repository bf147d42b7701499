"""What an idle krond does without, so that it stays small: `make bench ARGS="--only krond"` measures it."""

import subprocess
import sys

# Parsers, pages and clients that only some commands and some jobs need.
HEAVY = (
    "yaml", "typer", "rich", "fastapi", "jinja2", "prometheus_client", "psycopg", "celery", "tomllib",
    "statistics", "uuid", "kron.launchers.kubernetes.launcher", "kron.launchers.kubernetes.api",
)  # fmt: skip


def test_an_idle_krond_loads_nothing_that_only_some_jobs_need() -> None:
    code = "import sys, kron.cli.krond, kron.fronts.daemon.daemon; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert [name for name in HEAVY if name in loaded.split()] == []
