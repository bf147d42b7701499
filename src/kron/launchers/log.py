"""The log launcher: a run writes one line to the worker's log, and succeeds.

It needs no settings and reaches nothing outside the worker: for a first schedule, a rehearsal of times and
policies, or a schedule whose target does not exist yet.
"""

import logging
from dataclasses import dataclass, field
from typing import ClassVar

from kron.core.errors import one_line
from kron.core.fields import FieldTable, ValueType, invalid_value, parse_text, row
from kron.core.plan.report import Launch
from kron.core.time.instant import rfc3339
from kron.launchers.callback import CallbackLauncher
from kron.launchers.spec import (
    LauncherContext,
    LauncherKind,
    TableSettings,
    launcher_table,
    settings_parser,
)

_log = logging.getLogger("kron.runs")
MAX_MESSAGE = 500


def _parse_message(value: object) -> str:
    text = parse_text(value)
    if len(text) > MAX_MESSAGE:
        raise invalid_value(None, f"is longer than {MAX_MESSAGE} characters")
    return text


_MESSAGE = ValueType(schema={"type": "string", "maxLength": MAX_MESSAGE}, parse=_parse_message)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings(TableSettings):
    """The job writes a line to the worker's log."""

    kind: ClassVar[str] = "log"
    table: ClassVar[FieldTable]

    message: str = field(default="", metadata=row(_MESSAGE, "the text of the line", sparse=True))


LogSettings.table = launcher_table(LogSettings)
_settings_of = settings_parser(LogSettings)


async def _write(launch: Launch) -> None:
    run, settings = launch.run, _settings_of(launch.job.launcher)
    _log.info(
        "%s for %s, attempt %d: %s",
        one_line(run.identity),
        rfc3339(run.nominal_time),
        run.attempt,
        one_line(settings.message),
    )


def _build(_: str, context: LauncherContext) -> CallbackLauncher:
    return CallbackLauncher(context.clock, pick=lambda _: _write)


LOG = LauncherKind(
    name=LogSettings.kind,
    read=LogSettings.read,
    schema=LogSettings.schema(),
    traits={LogSettings.kind: CallbackLauncher.traits},
    build=_build,
)
