"""Redaction of settings: which of them are secret, how they are shown, and what logs must hide.

The text work is `kron.core.redaction`; launcher objects are redacted by their kinds (`kron.app.launchers`).
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kron.app.launchers import redact_launcher, secrets_in_launcher
from kron.core.redaction import (
    HIDDEN,
    redact_passwords,
    redact_values,
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


_URL = Sensitive(lambda value: redact_passwords(str(value)), lambda value: secrets_in_url(str(value)))
_SECRET = Sensitive(lambda _: HIDDEN, lambda value: [str(value)])
_LAUNCHER = Sensitive(
    lambda value: redact_launcher(json.dumps(value)), lambda value: secrets_in_launcher(_object(value))
)
_BROKER = Sensitive(lambda value: Broker(url=str(value)).shown, lambda value: Broker(url=str(value)).secrets)
_OPTIONS = Sensitive(lambda value: redact_values(_object(value)), secrets_in_options)
# Every setting that may hold a secret. A setting that is missing here is shown as it is.
SENSITIVE: Mapping[str, Sensitive] = {
    "store": _URL,
    "jwt_keys": _URL,
    "jwt_secret": _SECRET,
    "signing_secret": _SECRET,
    "default_launcher": _LAUNCHER,
    "executor": _LAUNCHER,
    "celery_broker": _BROKER,
    "celery_options": _OPTIONS,
}


def redact_setting(name: str, value: object) -> object:
    """Return the value of a setting as it may be shown."""
    sensitive = SENSITIVE.get(name)
    return value if sensitive is None or value is None else sensitive.redact(value)


def secrets_in_settings(values: Mapping[str, object]) -> list[str]:
    """Return what logs must hide, from the values of settings by name; those from files are read before."""
    given = [(SENSITIVE[name], value) for name, value in values.items() if value is not None]
    return [text for sensitive, value in given for text in sensitive.secrets(value)]
