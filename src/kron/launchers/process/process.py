"""One process under way: what is known of it, how it ended, and how it is told to end."""

import asyncio
import json
import logging
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from subprocess import Popen
from typing import NamedTuple

from kron.core.errors import InvalidOptionError
from kron.core.plan.record import RunRecord
from kron.core.time.instant import rfc3339
from kron.launchers.process.host import Files, exit_code_of, stat_of, written_status
from kron.launchers.report import plain_request_of
from kron.launchers.run_token import run_token_of
from kron.launchers.spec import OWN_PREFIX, ProcessSettings, settings_of
from kron.ports import Launch, ReportSink

_log = logging.getLogger("kron.launchers")


class Waiting(NamedTuple):
    """A launch that has not begun, and how often it failed to."""

    launch: Launch
    hear: ReportSink
    failed: int = 0


@dataclass(slots=True, eq=False)
class Process:
    """A process under way; one that was adopted has no `child`."""

    launch: Launch
    hear: ReportSink
    settings: ProcessSettings
    pid: int
    started: int
    files: Files
    child: Popen[bytes] | None = None
    pidfd: int | None = None
    trimmed: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    look: asyncio.Task[None] | None = None
    ending: asyncio.Task[None] | None = None

    @property
    def run_id(self) -> str:
        """Return the process's name on record: its number, and when it began."""
        return f"{self.pid}:{self.started}"

    @property
    def there(self) -> bool:
        """Say whether its number is still its own."""
        stat = stat_of(self.pid)
        return stat is not None and stat.started == self.started

    @property
    def ended(self) -> bool:
        """Say whether it is gone, or only waits for its parent to hear of its end."""
        if self.child is not None:
            try:
                return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
            except ChildProcessError:
                return True
        stat = stat_of(self.pid)
        return stat is None or stat.started != self.started or stat.ended

    def exit_code(self) -> int | None:
        """Return how it ended, as `Popen` says it, from whoever knows; None when nobody does."""
        code = self._waited_for()
        if code is None and self.pid:
            # An adopted one is not our child; a child that somebody else waited for is none any more.
            code = exit_code_of(self.pid, self.started, self.pidfd)
        return written_status(self.files.status) if code is None else code

    def _waited_for(self) -> int | None:
        if self.child is None and not self.there:
            return None
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            return None
        return os.waitstatus_to_exitcode(status) if pid else None

    def is_told(self) -> bool:
        """Say whether anybody can tell how it ended, without asking for good."""
        if written_status(self.files.status) is not None:
            return True
        if not self.there:
            return False
        if exit_code_of(self.pid, self.started, None) is not None:
            return True
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        except ChildProcessError:
            return False

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it and to all it started."""
        if self.child is None and not self.there:
            return
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass
        except PermissionError as error:
            _log.warning("%s cannot be sent %s: %s", self.run_id, number.name, error)

    def release(self) -> None:
        """Let go of what belongs to this program."""
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None
        if self.child is not None:
            # Nobody else is to wait for it, nor to warn that nobody did.
            self.child.returncode = 0


def process_settings(launch: Launch) -> ProcessSettings:
    """Return the settings of a launch, or raise InputError."""
    settings = settings_of(launch.job.launcher)
    if not isinstance(settings, ProcessSettings):
        kind = json.loads(launch.job.launcher)["kind"]
        raise InvalidOptionError(option="launcher.kind", value=kind, reason='must be "process" here')
    return settings


def env_of(
    usual: Mapping[bytes, bytes], launch: Launch, settings: ProcessSettings, *, secret: bytes | None = None
) -> Mapping[bytes, bytes]:
    """Return the environment of a process: the owner's, its own, and which execution it is.

    With a `secret` it has a token to report on the run with, and no other.
    """
    run, facts = launch.run, {} if launch.payload is None else launch.payload.facts
    token = None if secret is None else run_token_of(secret, run.key)
    maybe = {b"KRON_RUN_TOKEN": token, b"KRON_REQUEST_ID": plain_request_of(launch)}
    return {
        **usual,
        **{os.fsencode(name): os.fsencode(value) for name, value in settings.env},
        **{f"{OWN_PREFIX}{name.upper()}".encode(): value.encode() for name, value in facts.items()},
        b"KRON_IDENTITY": run.identity.encode(),
        b"KRON_PERIOD_ID": rfc3339(run.nominal_time).encode(),
        b"KRON_IDEMPOTENCY_KEY": run.key.encode(),
        b"KRON_ATTEMPT": b"%d" % run.attempt,
        b"KRON_FENCING_TOKEN": b"%d" % run.token,
        **{name: text.encode() for name, text in maybe.items() if text is not None},
    }


def number_of(run: RunRecord, pid: int | None) -> tuple[int, int]:
    """Return a process's number and when it began; 0 and 0 when neither is known."""
    if run.run_id is not None:
        number, _, started = run.run_id.partition(":")
        if number.isdigit() and started.isdigit():
            return int(number), int(started)
    stat = None if pid is None else stat_of(pid)
    return (0, 0) if pid is None or stat is None else (pid, stat.started)
