"""Every delivery of a start that an executor received, in the order of arrival."""

import json
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple


class Answer(StrEnum):
    """The response to a delivery. ACCEPTED: 202. REFUSED: not run. LOST: run, but the response was lost."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    LOST = "lost"


class Delivery(NamedTuple):
    """One request: which start, when, whether it was run now, and how it was answered.

    `at` is when it was noted, in milliseconds; `sent_at` when it was signed, directly before it was sent, in
    seconds. On a busy machine they are far apart.
    """

    identity: str
    key: str
    attempt: int
    token: int
    at: int
    sent_at: int
    ran: bool
    answer: Answer


def read_deliveries(path: Path) -> list[Delivery]:
    """Return all deliveries of a ledger."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [Delivery._make((*row[:-1], Answer(row[-1]))) for row in rows]
