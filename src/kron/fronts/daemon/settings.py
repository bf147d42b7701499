"""The settings of a krond: the channels of its notifications, and their default."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from kron.app.notify.channel import (
    DEFAULT_NOTIFY,
    SENSITIVE,
    Channel,
    default_of,
    parse_channels,
    parse_default,
)
from kron.app.notify.sender import NotifyOptions
from kron.app.settings import SettingsReader, integer, setting
from kron.core.errors import InputError
from kron.core.plan.outbox import DEFAULT_SEND_LIMITS, SendLimits
from kron.core.time.steady import DAY_MS
from kron.launchers.process.supervisor.trust import untrusted


@dataclass(frozen=True, slots=True, kw_only=True)
class KrondSettings:
    """The settings of a file; they have the names that they have in a service."""

    channels: Mapping[str, Channel] = setting(
        parse_channels, "Channels that jobs may name", default={}, sensitive=SENSITIVE
    )
    notify: Mapping[str, object] | None = setting(
        parse_default, "Notifications of jobs that set none", default=None, sensitive=DEFAULT_NOTIFY
    )
    notify_wait_ms: int = setting(
        integer(0, DAY_MS), "How long a message waits for others", default=DEFAULT_SEND_LIMITS.wait_ms
    )
    notify_interval_ms: int = setting(
        integer(0, DAY_MS), "Shortest interval of messages", default=DEFAULT_SEND_LIMITS.interval_ms
    )


def secrets_of(options: NotifyOptions) -> list[str]:
    """Return the URLs and passwords of notifications, which must not appear in a log."""
    default = [] if options.default is None else DEFAULT_NOTIFY.secrets(options.default.to_dict())
    return [*SENSITIVE.secrets(options.channels), *default]


def read_notify_options(file: str | None) -> NotifyOptions:
    """Return how a krond notifies, or raise with every problem of its settings file."""
    if file is None:
        return NotifyOptions()
    # A channel may be a command.
    with suppress(FileNotFoundError):  # the reader reports it
        if fault := untrusted(file):
            raise InputError(f"{file}: {fault}")
    settings = SettingsReader(KrondSettings).read({}, {}, file=file).settings
    return NotifyOptions(
        channels=settings.channels,
        default=default_of(settings.notify, settings.channels),
        limits=SendLimits(settings.notify_wait_ms, settings.notify_interval_ms),
    )
