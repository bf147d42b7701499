"""Settings as they are shown: each with its source, and without secrets."""

from collections.abc import Mapping

from kron.app.redaction import SENSITIVE, redact_setting, secrets_in_settings
from kron.fronts.service.settings import DEFAULT, SECRETS, SETTINGS, Effective, Settings


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
    if name == "client_subjects":
        return (
            {subject: caller.name for subject, caller in value.items()} if isinstance(value, Mapping) else {}
        )
    value = redact_setting(name, value)
    return sorted(value) if isinstance(value, frozenset) else value


def secrets_of(settings: Settings) -> list[str]:
    """Return the secrets of the settings and their files, which must not appear in a log."""
    broker = settings.broker
    from_files = {
        "store": settings.store_url,
        "celery_broker": None if broker is None else broker.url,
        **{name: settings.secret_of(name) for name in SECRETS},
    }
    return secrets_in_settings({name: getattr(settings, name) for name in SENSITIVE} | from_files)
