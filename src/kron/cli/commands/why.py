"""`kron why`: explains one period of a schedule."""

from typing import Annotated

import typer

from kron.cli.main import GOOD, one_line
from kron.cli.support.client import Name, Server, StoreUrl, Target, objects_in, request, show_json, text
from kron.cli.support.option import AsJson

Period = Annotated[
    str,
    typer.Argument(
        metavar="TIME", help="Period: 2026-06-01T06:30:00Z, or a wall time in the schedule's zone."
    ),
]


def why_command(
    name: Name, period: Period, server: Server = None, store: StoreUrl = None, as_json: AsJson = False
) -> int:
    """Explain why a period ran, did not run, or has not run yet.

    \b
    Examples:
      kron why daily-report 2026-06-01T06:30:00Z
      kron why daily-report 2026-06-01T08:30
    """  # noqa: D301
    answer = request(Target(server, store), lambda client: client.why(name, period))
    if as_json:
        show_json(answer)
        return GOOD
    print(one_line(f"{name} {text(answer['period_id'])}: {answer['outcome'] or answer['code']}"))
    for fact in objects_in(answer, "facts"):
        print(one_line(f"  {text(fact.get('at')):24}  {text(fact.get('sentence'))}"))
    return GOOD
