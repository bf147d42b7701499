"""`kron pause` and `kron resume`."""

import sys
from typing import Annotated

import typer

from kron.cli.main import GOOD, NO, print_error
from kron.cli.support.client import Name, Server, StoreUrl, Target, objects_in, request
from kron.cli.support.option import AsJson
from kron.cli.support.schedule import next_start_text
from kron.cli.support.terminal import Display, Utc, say, show_json
from kron.core.errors import one_line
from kron.core.wording import counted
from kron.fronts.service.client import ServiceClient
from kron.fronts.service.registrar import SUSPENDED
from kron.fronts.service.responses import View

# How many of the periods that would start are listed.
MAX_NAMED = 5
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Resume without confirmation.")]


Because = Annotated[
    str | None, typer.Option("--reason", "--because", metavar="TEXT", help="Reason of the pause.")
]
Until = Annotated[
    str | None,
    typer.Option(
        "--until", metavar="TIME", help="End of the pause, e.g. 2026-06-01T12:00Z; by default none."
    ),
]


def pause_command(
    name: Name,
    because: Because = None,
    until: Until = None,
    server: Server = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> int:
    """Pause a schedule: no period starts until it is resumed.

    With --until the pause ends then. Manual runs still start.

    \b
    Examples:
      kron pause daily-report
      kron pause daily-report --reason "the target is down" --until 2026-06-01T12:00Z
      kron pause daily-report --server http://127.0.0.1:8080
    """  # noqa: D301
    answer = request(
        Target(server, store), lambda client: client.pause(name, True, reason=because, until=until)
    )
    if as_json:
        show_json(answer)
    else:
        say(f"{name}: {answer.get('note') or 'paused'}")
    return GOOD


def resume_command(
    name: Name,
    yes: Yes = False,
    utc: Utc = False,
    server: Server = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> int:
    """Resume a paused schedule, after a preview of what starts.

    If runs would start, it asks for confirmation. Without a terminal and without --yes the schedule stays
    paused, and the exit code is 1.

    \b
    Examples:
      kron resume daily-report
      kron resume daily-report --yes
    """  # noqa: D301
    target, display = Target(server, store), Display(utc=utc)

    async def fetched(client: ServiceClient) -> tuple[View, View]:
        return await client.schedule(name), await client.preview_resume(name)

    schedule, preview = request(target, fetched)
    if not as_json and not schedule["paused"]:
        say(f"{name}: not paused, {_after(schedule, display)}")
        return GOOD
    if not as_json:
        _show(name, preview, display)
    if not (yes or preview["would_start"] == 0 or _confirmed(name)):
        if as_json:
            show_json({**preview, "paused": True})
        print_error("still paused; use --yes to resume it")
        return NO

    async def resumed(client: ServiceClient) -> tuple[View, View]:
        return await client.pause(name, False), await client.schedule(name)

    receipt, schedule = request(target, resumed)
    if as_json:
        show_json(receipt)
    else:
        say(f"{name}: resumed, {_after(schedule, display)}")
    return GOOD


def _after(schedule: View, display: Display) -> str:
    """Return what follows a resume: the next start, or that the definition suspends the schedule."""
    if schedule["suspended"]:
        return f"but {SUSPENDED}"
    # An operator may not have read of the resume yet.
    return f"next run {next_start_text(schedule, display) or display.when(schedule['next_run_at'])}"


def _confirmed(name: str) -> bool:
    return sys.stdin.isatty() and typer.confirm(f"Resume {one_line(name)}?", err=True)


def _show(name: str, preview: View, display: Display) -> None:
    starts = preview["would_start"]
    assert isinstance(starts, int), "the service answers with a number"
    times = [display.time(time) for time in objects_in(preview, "starts")]
    named = ", ".join(times[:MAX_NAMED]) + (", ..." if len(times) > MAX_NAMED else "")
    say(f"{name}: {counted(starts, 'run')} would start{': ' if named else ''}{named}")
    if preview["would_wait"]:
        say(f"  {preview['would_wait']} would wait")
    dropped = preview["would_drop"]
    assert isinstance(dropped, dict), "the service answers with counts by reason"
    for reason, periods in dropped.items():
        say(f"  {counted(periods, 'period')} would be dropped: {reason}")
