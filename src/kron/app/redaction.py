"""Redaction of settings: how each sensitive kind is shown, and what of it logs must hide.

The text work is `kron.core.redaction`; launcher objects are redacted by their kinds (`kron.app.launchers`).
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kron.app.launchers import redact_launcher, secrets_in_launcher
from kron.core.redaction import (
    HIDDEN,
    redact_passwords,
    secrets_in_options,
    secrets_in_url,
)
from kron.launchers.celery.broker import Broker


class Sensitive(NamedTuple):
    """How a sensitive setting is shown, and which texts of it must not appear in a log."""

    redact: Callable[[object], object]
    secrets: Callable[[object], Iterable[str]]


def _object(value: object) -> dict[str, object]:
    assert isinstance(value, Mapping)
    return dict(value)


def _words(value: object) -> tuple[str, ...]:
    assert isinstance(value, tuple)
    return value


URL = Sensitive(lambda value: redact_passwords(str(value)), lambda value: secrets_in_url(str(value)))
SECRETS = Sensitive(lambda value: HIDDEN if value else None, lambda value: list(_words(value)))
SECRET = Sensitive(lambda _: HIDDEN, lambda value: [str(value)])
LAUNCHER = Sensitive(
    lambda value: redact_launcher(json.dumps(value)), lambda value: secrets_in_launcher(_object(value))
)
BROKER = Sensitive(lambda value: Broker(url=str(value)).shown, lambda value: Broker(url=str(value)).secrets)
OPTIONS = Sensitive(lambda value: dict.fromkeys(_object(value), HIDDEN), secrets_in_options)
