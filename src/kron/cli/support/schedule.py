"""How commands select schedules, and show the state and the next start of one."""

from typing import Annotated

import typer

from kron.cli.support.terminal import Display
from kron.core.plan.pause import BY_HAND
from kron.fronts.service.documents import Document
from kron.fronts.service.responses import View

NO_SCHEDULE = "no schedule matches, or none is stored yet; kron schedules upsert adds one"
Search = Annotated[
    str | None, typer.Option("--search", metavar="TEXT", help="Only schedules with this text in their name.")
]


def next_start_text(schedule: View, display: Display) -> str:
    """Return the next start and the number of periods passed over; nothing for a stopped schedule."""
    if schedule["next_start_at"] is None and (schedule["paused"] or schedule["suspended"]):
        return ""
    passed = f" ({schedule['passed_over']} passed over)" if schedule["passed_over"] else ""
    return f"{display.when(schedule['next_start_at'])}{passed}"


def stopped_by(schedule: Document, display: Display | None = None) -> str:
    """Return what stops a schedule, with a display also why and how long; nothing if it is active."""
    words = []
    if schedule["paused"]:
        because, until = schedule["paused_because"], schedule["paused_until"]
        end = "" if until is None or display is None else f" until {display.time(until)}"
        reason = f" ({because})" if because and because != BY_HAND else ""
        words.append("paused" if display is None else f"paused{reason}{end}")
    if schedule["suspended"]:
        words.append("suspended" if display is None else "suspended by its definition")
    return ", ".join(words)
