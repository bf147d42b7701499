"""`kron logs`: the output of a run that krond started."""

import asyncio
import sys
from base64 import b64decode
from pathlib import Path
from typing import Annotated, Any

import typer

from kron.cli.main import GOOD, NO
from kron.cli.support.client import Name, Server, Target, socket_of
from kron.cli.support.option import AsJson
from kron.cli.support.terminal import say, show_json
from kron.core.errors import InvalidOptionError

# How often the output of a running process is read again, in seconds.
LOOK_S = 0.3
ONLY_KROND = "only krond keeps the output of runs: start it, or name it with --server krond or unix:PATH"

Period = Annotated[
    str | None, typer.Option("--period", metavar="TIME", help="The run of this period, not the latest run.")
]
Attempt = Annotated[
    int | None, typer.Option("--attempt", metavar="N", help="This attempt of the run, not the last one.")
]
Follow = Annotated[
    bool, typer.Option("-f", "--follow", help="Show further output as it is written, until the run ends.")
]


def logs_command(
    name: Name,
    period: Period = None,
    attempt: Attempt = None,
    follow: Follow = False,
    server: Server = None,
    as_json: AsJson = False,
) -> int:
    """Show the output of a run of krond, and how it ended.

    Of a long output, the start and the end are kept. The exit code is 1 if the run failed.

    \b
    Examples:
      kron logs backup/night
      kron logs backup/night --follow
      kron logs backup/night --period 2026-03-01T02:00:00Z --json
    """  # noqa: D301
    url = Target(server, None).server_url
    socket = None if url is None else socket_of(url)
    if socket is None:
        raise InvalidOptionError(option="--server", value=url or "none", reason=ONLY_KROND)
    return asyncio.run(_show(socket, name, period, attempt=attempt, follow=follow, as_json=as_json))


async def _show(
    socket: Path, name: str, period: str | None, *, attempt: int | None, follow: bool, as_json: bool
) -> int:
    from kron.cli.support.control import ControlClient

    client = ControlClient(socket)
    document: dict[str, Any] = await client.call("logs", name, period, attempt=attempt)
    if as_json:
        text = b64decode(document["output"]).decode(errors="replace")
        show_json({**document, "output": text})
        return NO if document.get("code") else GOOD
    _write(document)
    while follow and not document["ended"]:
        await asyncio.sleep(LOOK_S)
        options = {"key": document["idempotency_key"], "attempt": document["attempt"]}
        document = await client.call(
            "logs", name, document["period_id"], offset=document["offset"], **options
        )
        _write(document)
    say(_summary(document))
    return NO if document.get("code") else GOOD


def _write(document: dict[str, Any]) -> None:
    """Write a part of the output: as it is into a pipe, without control characters to a terminal."""
    text = b64decode(document["output"])
    if not text:
        return
    if sys.stdout.isatty():
        for line in text.decode(errors="replace").splitlines():
            say(line)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()


def _summary(document: dict[str, Any]) -> str:
    """Return one line: which run it was, and how it ended."""
    run = f"-- {document['period_id']} attempt {document['attempt']}: "
    if document.get("note"):
        return f"{run}{document['note']}"
    if not document["ended"]:
        return f"{run}running as process {document['pid']}"
    code = document.get("code")
    how = "its end is unknown" if code is None else f"signal {-code}" if code < 0 else f"exit status {code}"
    lost = f", output lost: {document['output_lost']}" if document.get("output_lost") else ""
    usage = f"{document.get('cpu_s')} s CPU, {document.get('max_rss_kb')} KiB at most"
    return f"{run}{how}, {usage}, {document.get('bytes')} bytes of output{lost}"
