"""`kron pause` and `kron resume`: a schedule stops, or goes on, and what that starts is said first."""

import sys
from typing import Annotated

import typer

from kron.cli.main import GOOD, NO, complain, one_line
from kron.cli.support.client import Name, Server, StoreUrl, Where, ask, objects_in, show_json, text
from kron.cli.support.option import AsJson
from kron.cli.support.table import counted
from kron.fronts.service.documents import Document

# How many of the periods that would start are named.
MAX_NAMED = 5
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, whatever would start.")]


def pause_command(name: Name, server: Server = None, store: StoreUrl = None, as_json: AsJson = False) -> int:
    """Pause a schedule: nothing of it starts until it is resumed.

    \b
    Examples:
      kron pause daily-report
      kron pause daily-report --server http://127.0.0.1:8080
    """  # noqa: D301
    answer = ask(Where(server, store), lambda desk: desk.pause(name, True))
    if as_json:
        show_json(answer)
    else:
        print(one_line(f"{name}: paused"))
    return GOOD


def resume_command(
    name: Name, yes: Yes = False, server: Server = None, store: StoreUrl = None, as_json: AsJson = False
) -> int:
    """Let a paused schedule go on; what would start of what passed meanwhile is said first.

    Where something would start, it asks; without a terminal, and without --yes, nothing changes and the
    exit code is 1.

    \b
    Examples:
      kron resume daily-report
      kron resume daily-report --yes
    """  # noqa: D301
    where = Where(server, store)
    foreseen = ask(where, lambda desk: desk.preview_resume(name))
    if not as_json:
        _show(name, foreseen)
    if not (yes or foreseen["would_start"] == 0 or _agreed(name)):
        if as_json:
            show_json({**foreseen, "paused": True})
        complain("nothing was changed; --yes resumes it")
        return NO
    answer = ask(where, lambda desk: desk.pause(name, False))
    if as_json:
        show_json(answer)
    else:
        print(one_line(f"{name}: resumed, next run {text(answer['next_run_at'])}"))
    return GOOD


def _agreed(name: str) -> bool:
    return sys.stdin.isatty() and typer.confirm(f"Resume {one_line(name)}?", err=True)


def _show(name: str, foreseen: Document) -> None:
    starts = foreseen["would_start"]
    assert isinstance(starts, int), "the service answers with a number"
    times = [str(time) for time in objects_in(foreseen, "starts")]
    named = ", ".join(times[:MAX_NAMED]) + (", ..." if len(times) > MAX_NAMED else "")
    print(one_line(f"{name}: {counted(starts, 'run')} would start{': ' if named else ''}{named}"))
    if foreseen["would_wait"]:
        print(f"  {foreseen['would_wait']} would wait")
    dropped = foreseen["would_drop"]
    assert isinstance(dropped, dict), "the service answers with counts by reason"
    for reason, periods in dropped.items():
        print(f"  {counted(periods, 'period')} would be dropped: {reason}")
