"""`kron why`: explains one period of a schedule."""

from collections.abc import Mapping, Sequence
from typing import Annotated, cast

import typer

from kron.app.query import LATEST
from kron.cli.main import GOOD
from kron.cli.support.client import Name, Namespace, Server, StoreUrl, Target, objects_in, request, text
from kron.cli.support.option import AsJson
from kron.cli.support.terminal import Cell, Color, Display, NoColor, Utc, say, show_json
from kron.core.job.outcome import Outcome

COLORS: dict[str, Color] = {
    Outcome.EXECUTED: Color.GREEN,
    Outcome.MISSED: Color.YELLOW,
    Outcome.UNSCHEDULABLE: Color.YELLOW,
    Outcome.SKIPPED: Color.DIM,
}
Period = Annotated[
    str,
    typer.Argument(
        metavar="[TIME]",
        help="Period: 2026-06-01T06:30:00Z, a wall time in the schedule's zone, or latest.",
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--if",
        metavar="FIELD=VALUE",
        help="What would have happened with another value, such as deadline=10m; may be repeated.",
    ),
]


def why_command(
    name: Name,
    period: Period = LATEST,
    changes: Changes = None,
    utc: Utc = False,
    no_color: NoColor = False,
    namespace: Namespace = None,
    server: Server = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> int:
    """Explain why a period ran, did not run, or has not run yet.

    Without a time it is the latest period that is due, or the first one if none has been.

    \b
    Examples:
      kron why daily-report
      kron why daily-report 2026-06-01T06:30:00Z
      kron why daily-report 2026-06-01T08:30
      kron why daily-report --if overlap=allow --if deadline=10m
    """  # noqa: D301
    answer = request(Target(server, store, namespace), lambda client: client.why(name, period, changes or ()))
    if as_json:
        show_json(answer)
        return GOOD
    display = Display(utc=utc, no_color=no_color)
    period_id, outcome = display.time(answer["period_id"]), text(answer["outcome"] or answer["code"])
    display.line(f"{name} {period_id}: ", Cell(outcome, COLORS.get(outcome)))
    say(f"  {sentence(text(answer['headline']))}")
    for fact in objects_in(answer, "facts"):
        say(f"  {display.time(fact.get('at')):25}  {text(fact.get('sentence'))}")
    if answer["remedy"]:
        say(f"  {sentence(text(answer['remedy']))}")
    other = answer.get("counterfactual")
    if isinstance(other, Mapping):
        show_counterfactual(other, display)
    return GOOD


def show_counterfactual(other: Mapping[str, object], display: Display) -> None:
    """Print what would have happened, and what that assumes."""
    changes = cast("Mapping[str, object]", other["changes"])
    fields = ", ".join(f"{name}={text(value)}" for name, value in changes.items())
    outcome = text(other["outcome"] or other["code"])
    display.line(f"If {fields}: ", Cell(outcome, COLORS.get(outcome)))
    say(f"  {sentence(text(other['headline']))}")
    for fact in objects_in(other, "facts"):
        say(f"  {display.time(fact.get('at')):25}  {text(fact.get('sentence'))}")
    for assumption in cast("Sequence[object]", other["assumptions"]):
        say(f"  Assumed: {sentence(text(assumption))}")


def sentence(words: str) -> str:
    """Return words as a sentence, with a capital letter and a full stop."""
    return f"{words[:1].upper()}{words[1:]}."
