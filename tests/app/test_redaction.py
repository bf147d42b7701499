"""Settings are shown without their secrets, and logs hide the same ones."""

from dataclasses import fields

import pytest

from kron.app.redaction import SENSITIVE, redact_setting, secrets_in_settings
from kron.core.redaction import HIDDEN, Redactor
from kron.fronts.service.settings import SETTINGS, Settings

SECRET = "hunter22"
VALUES: dict[str, object] = {
    "store": f"postgresql://ann:{SECRET}@db/kron",
    "jwt_keys": f"https://ann:{SECRET}@issuer/keys",
    "jwt_secret": SECRET * 4,
    "signing_secret": SECRET * 4,
    "default_launcher": {"kind": "http", "url": f"http://h/?key={SECRET}", "headers": {"X": SECRET}},
    "executor": {"kind": "process", "command": ["x"], "env": {"KEY": SECRET}},
    "celery_broker": f"amqp://ann:{SECRET}@a/;amqp://ann:{SECRET}@b/?password={SECRET}",
    "celery_options": {"sentinel_kwargs": {"password": SECRET}, "login_response": SECRET},
}


def test_every_sensitive_setting_is_known_and_in_no_repr() -> None:
    assert set(VALUES) == set(SENSITIVE) <= set(SETTINGS)
    assert {field.name for field in fields(Settings) if not field.repr} == set(SENSITIVE)
    assert SECRET not in repr(Settings(**VALUES))  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "value"), VALUES.items(), ids=VALUES)
def test_a_sensitive_setting_is_shown_without_its_secret(name: str, value: object) -> None:
    shown = str(redact_setting(name, value))
    assert HIDDEN in shown or name == "celery_broker"
    assert SECRET not in shown
    assert redact_setting(name, None) is None


def test_other_settings_are_shown_as_they_are() -> None:
    assert redact_setting("port", 8080) == 8080
    assert redact_setting("jwt_secret_file", "/run/secret") == "/run/secret"


@pytest.mark.parametrize("name", sorted(VALUES))
def test_what_is_hidden_in_settings_is_hidden_in_logs(name: str) -> None:
    redactor = Redactor(secrets_in_settings({"port": None, "jwt_keys": None, name: VALUES[name]}))
    secret = SECRET * 4 if name.endswith("_secret") else SECRET
    assert redactor.hide(f"it says {secret}") == f"it says {HIDDEN}"
