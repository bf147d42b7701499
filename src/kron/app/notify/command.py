"""Commands: programs of the operator that get a message as JSON on their standard input."""

import asyncio
import json
import os
from contextlib import suppress

from kron.app.notify.channel import CommandChannel
from kron.app.notify.message import Composed
from kron.launchers.delivery import DeliveryResult

# How much of a program's output an error quotes.
MAX_QUOTED = 200
# Variables a program inherits; the others may hold secrets of the service.
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER")


async def run_command(channel: CommandChannel, message: Composed) -> DeliveryResult:
    """Run the program of a channel; exit status 0 means that the message is sent."""
    name, seconds = channel.command[0], channel.timeout.total_seconds()
    environment = {key: os.environ[key] for key in INHERITED if key in os.environ}
    environment |= {"KRON_NOTIFICATION_ID": message.id, "KRON_NOTIFICATION_SUMMARY": message.subject}
    try:
        process = await asyncio.create_subprocess_exec(
            *channel.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    except (OSError, ValueError) as cause:
        return DeliveryResult(f"{name} cannot be run: {cause}", retry=True)
    try:
        async with asyncio.timeout(seconds):
            _, errors = await process.communicate(json.dumps(message.document).encode())
    except TimeoutError:
        return DeliveryResult(f"{name} was killed after {seconds:g} s", retry=True)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode == 0:
        return DeliveryResult()
    output = " ".join(errors.decode(errors="replace").split())[:MAX_QUOTED]
    return DeliveryResult(
        f"{name} exited with status {process.returncode}: {output}".rstrip(": "), retry=True
    )
