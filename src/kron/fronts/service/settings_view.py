"""Settings as they are shown: each with where it came from, and without passwords."""

import json
from collections.abc import Mapping

from kron.core.redaction import HIDDEN, redact_passwords
from kron.fronts.service.documents import launcher_view
from kron.fronts.service.settings import DEFAULT, SECRETS, SETTINGS, Effective
from kron.launchers.celery.broker import Broker

# Settings that are addresses, in which a password may stand.
ADDRESSES = ("store", "jwt_keys")


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
