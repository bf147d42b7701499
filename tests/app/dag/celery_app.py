"""A Celery application for tests: its broker, its results and the log of its tasks are folders and a file."""

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery

FOLDER = Path(os.environ["KRON_TEST_CELERY"])
app = Celery("tests", broker="filesystem://", backend=f"file://{FOLDER / 'results'}")
app.conf.update(
    broker_transport_options=dict.fromkeys(
        ("data_folder_in", "data_folder_out", "control_folder"), str(FOLDER / "broker")
    ),
    task_track_started=True,
    worker_prefetch_multiplier=1,
    # How long Celery waits for the result of a process that died, in seconds.
    worker_lost_wait=1.0,
)


def note(meta: dict[str, Any]) -> None:
    """Write down that an attempt of a task executes."""
    with (FOLDER / "log").open("a") as log:
        log.write(f"{meta['run_id']} {meta['task_id']} {meta['attempt']}\n")


@app.task(name="extract")  # type: ignore[untyped-decorator]
def extract(*, input: dict[str, Any], meta: dict[str, Any], **_: object) -> list[int]:  # noqa: A002
    """Return some rows."""
    note(meta)
    return [1, 2, int(input.get("more", 3))]


@app.task(name="load")  # type: ignore[untyped-decorator]
def load(*, arguments: dict[str, Any], meta: dict[str, Any], **_: object) -> int:
    """Fail once, then add up rows."""
    note(meta)
    if meta["attempt"] == 1:
        raise ValueError("not yet")
    return sum(arguments["rows"])


@app.task(name="wait")  # type: ignore[untyped-decorator]
def wait(*, meta: dict[str, Any], **_: object) -> str:
    """Wait for a file; without one, until killed."""
    note(meta)
    while not (FOLDER / "gate").exists():
        time.sleep(0.02)
    return "over"
