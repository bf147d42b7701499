"""`kron logs`: the output of a run that krond or a service started."""

import asyncio
import sys
from base64 import b64decode
from typing import Annotated, Any

import typer

from kron.cli.main import GOOD, NO
from kron.cli.support.client import Name, Server, Target, request
from kron.cli.support.option import AsJson
from kron.cli.support.terminal import say, show_json
from kron.core.errors import InvalidOptionError
from kron.fronts.service.client import ServiceClient
from kron.fronts.service.runs import OutputRequest

# How often the output of a running process is read again, in seconds.
LOOK_S = 0.3
NO_SERVER = "name the service or krond that ran it: --server URL, krond or unix:PATH"

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
    """Show the output of a run's process, and how it ended.

    Of a long output, the start and the end are kept. The exit code is 1 if the run failed.

    \b
    Examples:
      kron logs backup/night
      kron logs backup/night --follow
      kron logs backup/night --period 2026-03-01T02:00:00Z --json
      kron logs backup/night --server http://127.0.0.1:8080
    """  # noqa: D301
    target = Target(server, None)
    if target.server_url is None:
        raise InvalidOptionError(option="--server", value="none", reason=NO_SERVER)
    wanted = OutputRequest(period, attempt=attempt)
    return request(target, lambda client: _show(client, name, wanted, follow=follow, as_json=as_json))


async def _show(
    client: ServiceClient, name: str, wanted: OutputRequest, *, follow: bool, as_json: bool
) -> int:
    document: dict[str, Any] = dict(await client.logs(name, wanted))
    if as_json:
        text = b64decode(document["output"]).decode(errors="replace")
        show_json({**document, "output": text})
        return _code_of(document)
    _write(document)
    while follow and not document["ended"]:
        await asyncio.sleep(LOOK_S)
        place = OutputRequest(
            document["period_id"], document["idempotency_key"], document["attempt"], document["offset"]
        )
        document = dict(await client.logs(name, place))
        _write(document)
    say(_summary(document))
    return _code_of(document)


def _code_of(document: dict[str, Any]) -> int:
    """Return the exit code; where no supervisor recorded one, that of the run's last attempt."""
    code = document.get("code")
    has_failed = document["status"] == "FAILED" and document["attempt"] == document["attempts"]
    return NO if code or (code is None and has_failed) else GOOD


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
        return f"{run}running" + (f" as process {document['pid']}" if document.get("pid") else "")
    code = document.get("code")
    if code is None and document.get("bytes") is None:
        return f"{run}{document['status'].lower()}"
    how = "its end is unknown" if code is None else f"signal {-code}" if code < 0 else f"exit status {code}"
    lost = f", output lost: {document['output_lost']}" if document.get("output_lost") else ""
    # A supervisor that was killed has measured nothing.
    used, most = document.get("cpu_s"), document.get("max_rss_kb")
    usage = "" if used is None else f"{used} s CPU, {most} KiB at most, "
    return f"{run}{how}, {usage}{document.get('bytes')} bytes of output{lost}"
