"""Settings are shown without their secrets, and logs hide the same ones."""

from dataclasses import fields

import pytest

from kron.app.notify.channel import parse_channels
from kron.app.settings import Effective
from kron.core.redaction import HIDDEN, Redactor
from kron.fronts.service.settings import SETTINGS, Settings, secrets_of

SECRET = "hunter22"
VALUES: dict[str, object] = {
    "store": f"postgresql://ann:{SECRET}@db/kron",
    "jwt_keys": f"https://ann:{SECRET}@issuer/keys",
    "jwt_secret": SECRET * 4,
    "signing_secret": SECRET * 4,
    "secret_keys": (SECRET * 4,),
    "default_launcher": {"kind": "http", "url": f"http://h/?key={SECRET}", "headers": {"X": SECRET}},
    "executor": {"kind": "process", "command": ["x"], "env": {"KEY": SECRET}},
    "celery_broker": f"amqp://ann:{SECRET}@a/;amqp://ann:{SECRET}@b/?password={SECRET}",
    "celery_backend": f"redis://ann:{SECRET}@backend:6379/0",
    "channels": parse_channels(
        {
            "ops": {"kind": "webhook", "url": f"https://hooks.example/{SECRET}"},
            "mail": {
                "kind": "email",
                "server": "smtps://mail.example",
                "user": "ann",
                "password": SECRET,
                "from": "a@b.example",
                "to": ["c@d.example"],
            },
        }
    ),
    "notify": {"to": [f"https://hooks.example/{SECRET}"]},
    "celery_options": {"sentinel_kwargs": {"password": SECRET}, "login_response": SECRET},
}


SENSITIVE = {name: entry.sensitive for name, entry in SETTINGS.items() if entry.sensitive is not None}


def test_every_sensitive_setting_is_known_and_in_no_repr() -> None:
    assert set(VALUES) == set(SENSITIVE)
    assert {field.name for field in fields(Settings) if not field.repr} == set(SENSITIVE)
    assert SECRET not in repr(Settings(**VALUES))  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "value"), VALUES.items(), ids=VALUES)
def test_a_sensitive_setting_is_shown_without_its_secret(name: str, value: object) -> None:
    settings = Settings(**{name: value})  # type: ignore[arg-type]
    shown = {row["name"]: str(row["value"]) for row in Effective(settings, {}).rows()}
    assert HIDDEN in shown[name] or name in ("celery_broker", "channels", "notify")
    assert SECRET not in str(shown)


def test_other_settings_are_shown_as_they_are() -> None:
    settings = Settings(port=8081, jwt_secret_file="/run/secret")
    shown = {row["name"]: row["value"] for row in Effective(settings, {}).rows()}
    assert (shown["port"], shown["jwt_secret_file"], shown["jwt_secret"]) == (8081, "/run/secret", None)


@pytest.mark.parametrize("name", sorted(VALUES))
def test_what_is_hidden_in_settings_is_hidden_in_logs(name: str) -> None:
    redactor = Redactor(secrets_of(Settings(**{name: VALUES[name]})))  # type: ignore[arg-type]
    secret = SECRET * 4 if name.endswith(("_secret", "_keys")) and name != "jwt_keys" else SECRET
    assert redactor.hide(f"it says {secret}") == f"it says {HIDDEN}"
