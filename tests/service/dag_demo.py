"""A DAG with a past, in a service that runs DAGs: for pictures of its pages, and for tests in a browser."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from tests.waiting import wait_for

NAME = "sales-report"
VARIABLES = {
    "KRON_EXECUTOR": '{"kind": "dag"}',
    "KRON_ALLOWED_COMMANDS": "/bin/sh",
    "KRON_DRAIN_MS": "200",
    "KRON_LEASE_MS": "2000",
}
# The import fails once in each run, and for good on two days; on one day a branch skips the export.
IMPORT = 'echo "reading orders of $KRON_LOGICAL_DATE"; [ "$KRON_ATTEMPT" -gt 1 ] && echo 1842 orders'
FLAKY = 'case $KRON_LOGICAL_DATE in *-03T*|*-11T*) echo "rate table is empty"; exit 3;; esac; echo "12 rates"'
CHOOSE = 'case $KRON_LOGICAL_DATE in *-07T*) echo "[]";; *) echo "[\\"export\\"]";; esac'


def sh(name: str, script: str, *needs: str, **more: object) -> dict[str, object]:
    """Return a task that runs a shell."""
    return {
        "id": name, "type": "process", "command": ["/bin/sh", "-c", script], "dependsOn": list(needs), **more,
    }  # fmt: skip


DOCUMENT: dict[str, Any] = {
    "user_id": "ann",
    "nodes": [
        sh("import-orders", f"sleep 0.3; {IMPORT}", retries=1, retry_delay="100ms"),
        sh("import-rates", f"sleep 0.2; {FLAKY}"),
        sh("convert", "sleep 0.25; echo converted", "import-orders", "import-rates"),
        sh("totals", "sleep 0.3; echo 'total 99,120.50'", "convert"),
        sh("check-export", CHOOSE, "convert", branch=True, result="last_line"),
        sh("export", "sleep 0.2; echo exported", "check-export"),
        sh("notify", "echo sent", "totals", "export", trigger_rule="all_done"),
    ],
    "triggers": [
        {
            "id": "daily",
            "type": "schedule_based",
            "schedule": {"cron_expr": "0 3 * * *", "timezone": "Europe/Berlin"},
        }
    ],
}


def seed(client: httpx.Client, days: int = 14) -> list[str]:
    """Deploy the DAG, catch up some days, wait for their ends, and return the runs, oldest first."""
    assert client.put(f"/workflows/{NAME}/versions/1", json=DOCUMENT).status_code == 201
    first = datetime(2026, 6, 1, tzinfo=UTC)
    span = {
        "range_start_logical_date": first.isoformat(),
        "range_end_logical_date": (first + timedelta(days=days - 1)).isoformat(),
        "slot_interval_ms": 86_400_000,
    }
    started = client.post(f"/dags/{NAME}/catchup", json=span).json()["started_runs"]
    runs = [run["run_id"] for run in started]
    wait_for(lambda: all(client.get(f"/dag-runs/{run}").json()["ended_at"] for run in runs))
    return runs
