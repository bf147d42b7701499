"""`kron workers`: who holds which shards, and the drain of a worker."""

from typing import Annotated

import typer

from kron.cli.main import GOOD
from kron.cli.support.client import Server, StoreUrl, Target, objects_in, request, text
from kron.cli.support.option import AsJson
from kron.cli.support.terminal import Display, NoColor, Utc, say, show_json
from kron.core.errors import InvalidOptionError

Drain = Annotated[
    str | None,
    typer.Option("--drain", metavar="WORKER", help="Let this worker hand over its shards and start nothing."),
]
Resume = Annotated[str | None, typer.Option("--resume", metavar="WORKER", help="End the drain of a worker.")]


def workers_command(
    drain: Drain = None,
    resume: Resume = None,
    utc: Utc = False,
    no_color: NoColor = False,
    server: Server = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> int:
    """List the workers with their shards, or drain one.

    A drained worker starts nothing more, waits for its running executions up to `drain_ms`, hands its shards
    over to the other workers, and stays idle until it is resumed or its process ends.

    \b
    Examples:
      kron workers
      kron workers --drain host1:4711:9f86d081
      kron workers --resume host1:4711:9f86d081 --server http://127.0.0.1:8080
    """  # noqa: D301
    target = Target(server, store)
    if drain is not None and resume is not None:
        raise InvalidOptionError(option="--resume", value=resume, reason="use either --drain or --resume")
    name = resume if drain is None else drain
    if name is not None:
        answer = request(target, lambda client: client.drain(name, drain is not None))
        if as_json:
            show_json(answer)
        else:
            say(f"{name}: {'drain' if drain is not None else 'resume'} requested, now {answer['state']}")
        return GOOD
    listed = request(target, lambda client: client.workers())
    if as_json:
        show_json(listed)
        return GOOD
    display = Display(utc=utc, no_color=no_color)
    rows = [
        (
            text(each["worker"]),
            text(each["state"]),
            text(each["shard_count"]),
            display.time(each["heartbeat_at"]),
            text(each["version"]),
        )
        for each in objects_in(listed, "workers")
    ]
    display.table(
        ("WORKER", "STATE", "SHARDS", "HEARTBEAT", "VERSION"), rows, empty="no worker holds a lease"
    )
    return GOOD
