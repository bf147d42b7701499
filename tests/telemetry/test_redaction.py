"""Secrets are hidden wherever they stand, and nothing else is."""

import json
import logging
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.redaction import Redactor
from kron.fronts.service.auth.principal import PROGRAM, acting_as, current_request_id
from kron.fronts.service.settings import Settings, secrets_of
from kron.runtime.journal import EngineEvent
from kron.telemetry.decision_log import STARTED, DecisionLines, LogEntry
from kron.telemetry.log_format import ConsoleFormatter, JsonFormatter
from kron.testing.contract.sample import a_job, a_run
from tests.strategies import law

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("Authorization: Bearer abc.def", "Authorization: ***", id="a header"),
        pytest.param("{'authorization': 'Basic YW5uOnB3'}", "{'authorization': '***'}", id="a dictionary"),
        pytest.param('{"token": "s3cret", "user": "ann"}', '{"token": "***", "user": "ann"}', id="JSON"),
        pytest.param("(b'authorization', b'Bearer xyz1')", "(b'authorization', b'Bearer ***')", id="raw"),
        pytest.param("sent bearer abcd1234 to it", "sent bearer *** to it", id="in a sentence"),
        pytest.param(f"got {JWT}, refused", "got ***, refused", id="a token"),
        pytest.param("kron-run.0123456789abcdefXYZ_-", "***", id="the token of a run"),
        pytest.param("postgresql://ann:pw@db/kron", "postgresql://ann:***@db/kron", id="a URL"),
        pytest.param("http://h/x?api_key=k1&n=2", "http://h/x?api_key=***&n=2", id="a parameter"),
        pytest.param("password=hunter2 host=db", "password=*** host=db", id="a connection string"),
        pytest.param("client_secret: abc", "client_secret: ***", id="a secret"),
        pytest.param("launched a with http://h:80/x", "launched a with http://h:80/x", id="nothing"),
        pytest.param("the token is missing", "the token is missing", id="only a word"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str, expected: str) -> None:
    assert Redactor().hide(text) == expected
    assert Redactor().hide(expected) == expected


@law(50)
@given(secret=st.text("abcXYZ019+/$(.*", min_size=4, max_size=20), around=st.text(max_size=20))
def test_what_was_configured_is_hidden_whatever_it_looks_like(secret: str, around: str) -> None:
    assert secret not in Redactor([secret]).hide(f"{around}{secret}{around}").replace("***", "")


def test_settings_say_what_is_secret() -> None:
    launcher = {
        "kind": "http",
        "url": "http://ann:p%40ss@h/?key=0123456789",
        "headers": {"X-Key": "abcdefgh"},
    }
    settings = Settings(store="postgresql://kron:dbpass@db/kron?sslmode=require", default_launcher=launcher)
    assert {"dbpass", "p@ss", "p%40ss", "0123456789", "abcdefgh"} <= set(secrets_of(settings))
    assert "require" not in secrets_of(settings)
    process = {"kind": "process", "command": ["/bin/true"], "env": {"KEY": "abcdefgh"}}
    assert "abcdefgh" in secrets_of(Settings(default_launcher=process))
    assert "abcdefgh" in secrets_of(Settings(executor=process))


def test_secrets_in_files_and_parameters_are_secret_too(tmp_path: Path) -> None:
    file = tmp_path / "store.txt"
    file.write_text("postgresql://kron@db/kron?password=of%20file&sslpassword=of-key\n")
    (tmp_path / "secret.txt").write_text("x" * 32)
    settings = Settings(
        store_file=str(file),
        jwt_secret_file=str(tmp_path / "secret.txt"),
        signing_secret="y" * 32,
        jwt_keys="https://kron:of-keys@h/jwks",
    )
    assert {"of file", "of-key", "of-keys", "x" * 32, "y" * 32} <= set(secrets_of(settings))
    broken = "postgresql://kron:hunter2@[db/kron"
    assert "hunter2" in secrets_of(Settings(store=broken))


@pytest.mark.parametrize(
    "formatter",
    [
        ConsoleFormatter(Redactor(["hunter22"]), current_request_id),
        JsonFormatter(Redactor(["hunter22"]), current_request_id),
    ],
)
def test_arguments_and_tracebacks_are_hidden_too(formatter: logging.Formatter) -> None:
    try:
        raise ValueError("no hunter22 here: Authorization: Bearer abcdef")
    except ValueError as error:
        record = logging.LogRecord(
            "kron",
            logging.ERROR,
            __file__,
            1,
            "%s and %s",
            ("hunter22", JWT),
            (ValueError, error, error.__traceback__),
        )
    shown = formatter.format(record)
    assert "ValueError" in shown
    assert not any(secret in shown for secret in ("hunter22", "abcdef", JWT))
    if isinstance(formatter, JsonFormatter):
        assert json.loads(shown)["message"] == "*** and ***"


def said(formatter: logging.Formatter, message: object) -> str:
    return formatter.format(logging.LogRecord("kron", logging.INFO, "f", 1, message, (), None))


@pytest.mark.parametrize(
    "formatter",
    [ConsoleFormatter(Redactor(), current_request_id), JsonFormatter(Redactor(), current_request_id)],
)
def test_what_happened_to_the_engine_is_said_without_secrets(formatter: logging.Formatter) -> None:
    line = said(
        formatter, EngineEvent("store_failed", {"error": "postgresql://ann:hunter2x@db/kron", "tries": 3})
    )
    assert "hunter2x" not in line
    assert "store_failed" in line
    assert "3" in line


@pytest.mark.parametrize(
    "formatter",
    [ConsoleFormatter(Redactor(), current_request_id), JsonFormatter(Redactor(), current_request_id)],
)
@pytest.mark.parametrize(("asked", "under_way"), [(JWT, None), (None, JWT), ("ticket", JWT), (JWT, "ticket")])
def test_the_id_of_a_request_may_be_anything_and_is_hidden_where_it_is_a_secret(
    formatter: logging.Formatter, asked: str | None, under_way: str | None
) -> None:
    job, run = a_job(), a_run()
    with acting_as(PROGRAM, under_way):
        line = said(formatter, DecisionLines([LogEntry(STARTED, job, run, asked)], 0))
    assert JWT not in line
    assert "started backup" in line or '"event":"started"' in line
    assert "***" in line or "ticket" in line


def test_a_line_for_people_has_no_control_character_of_a_name_or_an_error() -> None:
    formatter = ConsoleFormatter(Redactor(), current_request_id)
    hostile = "x\x1b]0;pwned\x07\x9b2J\n2026-06-01 forged line"
    try:
        raise RuntimeError(hostile)
    except RuntimeError:
        record = logging.LogRecord("kron", logging.ERROR, "", 0, "job %s failed", (hostile,), sys.exc_info())
    first, *rest = formatter.format(record).split("\n")
    assert first.endswith("job x\\x1b]0;pwned\\x07\\x9b2J\\n2026-06-01 forged line failed")
    assert rest[0] == "Traceback (most recent call last):"
    assert all(line.isprintable() for line in rest)
