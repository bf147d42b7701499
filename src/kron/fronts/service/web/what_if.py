"""The page that replays a schedule's records with other fields: which periods would have ended otherwise."""

from collections import Counter
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query
from starlette.responses import Response

from kron.core.errors import InvalidOptionError
from kron.core.job.outcome import Outcome
from kron.core.plan.counterfactual import OtherOutcomes, what_if
from kron.core.time.zone import Zone
from kron.fronts.service.registrar import Registrar, unknown_as_schedule
from kron.fronts.service.web.actions import Name
from kron.fronts.service.web.render import READ, rendered
from kron.fronts.service.web.time_text import PageTime, moment_of
from kron.fronts.service.web.view_models import OUTCOMES, zone_of_job

# How many periods that would have ended otherwise are listed.
MAX_LISTED = 100
Changes = Annotated[str, Query(alias="if", max_length=1_000, description="changed fields of its definition")]


class ChangedOutcome(NamedTuple):
    """A period that would have ended otherwise: the look and the word of each of its two outcomes."""

    at: PageTime
    before: tuple[str, str]
    after: tuple[str, str]


class ChangedOutcomes(NamedTuple):
    """What other fields would have done to the periods of a schedule, and how many of each change."""

    periods: int
    since: PageTime
    total: int
    counts: list[tuple[int, str, str]]
    rows: list[ChangedOutcome]
    assumptions: list[str]


def changed_outcomes_of(other: OtherOutcomes, zone: Zone, now: int) -> ChangedOutcomes:
    """Return the periods that would have ended otherwise, as their page shows them."""
    rows = [
        ChangedOutcome(
            moment_of(1000 * each.nominal_time, zone, now), _look_of(each.before), _look_of(each.after)
        )
        for each in other.changed
    ]
    counts = Counter((row.before[1], row.after[1]) for row in rows)
    return ChangedOutcomes(
        other.periods,
        moment_of(1000 * other.since, zone, now),
        len(rows),
        [(count, before, after) for (before, after), count in counts.most_common()],
        rows[:MAX_LISTED],
        other.assumptions,
    )


def _look_of(outcome: Outcome | None) -> tuple[str, str]:
    """Return the look and the word of an outcome; None is no period, or one that waits or runs at the end."""
    return ("wait", "unfinished") if outcome is None else OUTCOMES[outcome]


def add_what_if(router: APIRouter, registrar: Registrar) -> None:
    """Add the route of the page."""
    query = registrar.catalog.query

    @router.api_route("/ui/schedule/what-if", methods=READ)
    async def what_if_page(name: Name, changes: Changes = "") -> Response:
        with unknown_as_schedule():
            zone = zone_of_job((await query.find(name, deleted=True)).job)
        shown, problem = None, None
        try:
            if changes.strip():
                other = await query.what_if_all(name, what_if(changes.split()), registrar.traits)
                shown = changed_outcomes_of(other, zone, registrar.now())
        except InvalidOptionError as error:
            problem = str(error)
        values = {"name": name, "zone": zone, "changes": changes.strip(), "it": shown, "problem": problem}
        code = 400 if problem else 200
        return await rendered("what_if.html", registrar.now(), code, listed=MAX_LISTED, **values)
