"""What an executor saw: every delivery of a start, in the order in which they came."""

import json
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple


class Answer(StrEnum):
    """How a delivery was answered. ACCEPTED: with 202. REFUSED: not run. LOST: run, and nobody was told."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    LOST = "lost"


class Delivery(NamedTuple):
    """One request: which start, when, whether it was run now, and how it was answered."""

    identity: str
    key: str
    attempt: int
    token: int
    at: int
    ran: bool
    answer: Answer


def read_deliveries(path: Path) -> list[Delivery]:
    """Return all deliveries of a ledger."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [Delivery._make((*row[:-1], Answer(row[-1]))) for row in rows]
