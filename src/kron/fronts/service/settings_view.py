"""Settings as they are shown: each with its source, and without secrets."""

import json
from collections.abc import Mapping

from kron.core.redaction import HIDDEN, redact_passwords, secrets_in_url
from kron.fronts.service.documents import launcher_view
from kron.fronts.service.settings import DEFAULT, SECRETS, SETTINGS, Effective, Settings
from kron.launchers.celery.broker import Broker
from kron.launchers.spec import HttpSettings, ProcessSettings, read_launcher

# Settings that are addresses, in which a password may stand.
ADDRESSES = ("store", "jwt_keys")
# Shorter values of headers, variables and parameters would match everywhere in a log.
MIN_VALUE = 8


def shown(effective: Effective) -> list[dict[str, object]]:
    """Return every setting with its value and where it came from; passwords are left out."""
    lines: list[dict[str, object]] = []
    for name, (_, means) in SETTINGS.items():
        value = getattr(effective.settings, name)
        found = effective.found.get(name)
        lines.append(
            {
                "name": name,
                "value": _plain(name, value),
                "source": DEFAULT if found is None else found.source,
                "place": None if found is None else found.name,
                "means": means,
            }
        )
    return lines


def _plain(name: str, value: object) -> object:
    if name in ("default_launcher", "executor") and value is not None:
        return launcher_view(json.dumps(value))
    if name in SECRETS and value is not None:
        return HIDDEN
    if name == "client_subjects":
        return (
            {subject: caller.name for subject, caller in value.items()} if isinstance(value, Mapping) else {}
        )
    if name == "celery_broker" and value is not None:
        return Broker(url=str(value)).shown
    if name == "celery_options" and isinstance(value, Mapping):
        return dict.fromkeys(value, HIDDEN)
    if name in ADDRESSES and value is not None:
        return redact_passwords(str(value))
    return sorted(value) if isinstance(value, frozenset) else value


def secrets_of(settings: Settings) -> list[str]:
    """Return the secrets of the settings, which must not appear in a log."""
    secrets = [*secrets_in_url(settings.store_url), *secrets_in_url(settings.jwt_keys or "")]
    secrets += [settings.secret_of(name) or "" for name in SECRETS]
    broker = settings.broker
    secrets += [] if broker is None else broker.secrets
    for launcher in (settings.default_launcher, settings.executor):
        secrets += [] if launcher is None else _secrets_in(launcher)
    return secrets


def _secrets_in(document: Mapping[str, object]) -> list[str]:
    """Return the secrets of a launcher object: passwords, header values, variables."""
    launcher = read_launcher(document)
    if isinstance(launcher, HttpSettings):
        values = [value for _, value in launcher.headers]
        values += secrets_in_url(launcher.url, every_parameter=True)
        return [*secrets_in_url(launcher.url), *(value for value in values if len(value) >= MIN_VALUE)]
    if isinstance(launcher, ProcessSettings):
        return [value for _, value in launcher.env if len(value) >= MIN_VALUE]
    return []
