"""Settings: where they come from, what they may be, and how they are shown (SPEC 3: 11)."""

import json
import os
from pathlib import Path

import pytest

from kron.app.notify.channel import CommandChannel
from kron.app.settings import InvalidSettingsError
from kron.cli.main import BAD, GOOD, run
from kron.core.errors import InputError, UnreadableFileError
from kron.fronts.service.auth.principal import Caller, TokenScope
from kron.fronts.service.settings import SETTINGS, Settings, read_settings

# The names of SPEC 3, which work without the prefix too.
BARE = [name for name, entry in SETTINGS.items() if entry.bare]
# Another value than the default, as the environment writes it, and what it is read as.
SECRET = "a secret that is long enough to be one"
OTHERS: dict[str, tuple[str, object]] = {
    "jwt_keys": ("keys.json", "keys.json"),
    "jwt_secret": (SECRET, SECRET),
    "jwt_secret_file": ("jwt.txt", "jwt.txt"),
    "jwt_audience": ("cron", "cron"),
    "jwt_issuer": ("https://issuer.example", "https://issuer.example"),
    "jwt_skew_s": ("5", 5),
    "tls_certificate": ("server.crt", "server.crt"),
    "tls_key": ("server.key", "server.key"),
    "tls_client_authorities": ("clients.pem", "clients.pem"),
    "client_subjects": (
        '{"CN=ci": {"user_id": "ci", "scopes": ["read"]}}',
        {"CN=ci": Caller("ci", frozenset({TokenScope.READ}), ("ci",))},
    ),
    "requests_per_s": ("7", 7),
    "patience_s": ("8", 8),
    "max_schedules": ("9", 9),
    "max_running": ("11", 11),
    "max_open_runs": ("13", 13),
    "max_workflow_versions": ("12", 12),
    "min_interval_s": ("10", 10),
    "store": ("memory://", "memory://"),
    "store_file": ("store.txt", "store.txt"),
    "host": ("::1", "::1"),
    "port": ("0", 0),
    "insecure": ("true", True),
    "trusted_hosts": ("Kron.example,[::1]", frozenset({"kron.example", "::1"})),
    "tick_ms": ("500", 500),
    "lookahead_ms": ("30000", 30_000),
    "max_catchup_per_tick": ("7", 7),
    "default_overlap_policy": ("queue", "queue"),
    "default_catchup_policy": ("fire_immediately", "fire_immediately"),
    "default_jitter_ms": ("250", 250),
    "default_launcher": ('{"kind": "http", "url": "http://h/"}', {"kind": "http", "url": "http://h/"}),
    "executor": ('{"kind": "callback", "name": "run"}', {"kind": "callback", "name": "run"}),
    "workflows": ("flows", "flows"),
    "signing_secret": (SECRET, SECRET),
    "signing_secret_file": ("secret.txt", "secret.txt"),
    "secret_keys": (f"{SECRET},{SECRET}2", (SECRET, f"{SECRET}2")),
    "secret_keys_file": ("keys.txt", "keys.txt"),
    "launcher_secrets": ('{"api": "env:API"}', {"api": "env:API"}),
    "allowed_timezones": ("UTC, Europe/Berlin", frozenset({"UTC", "Europe/Berlin"})),
    "allowed_commands": ("/bin/true,/bin/false", frozenset({"/bin/true", "/bin/false"})),
    "allowed_variables": ("MODE,REGION", frozenset({"MODE", "REGION"})),
    "inherited_variables": ("AWS_REGION", frozenset({"AWS_REGION"})),
    "allowed_launchers": ("queue", frozenset({"queue"})),
    "allowed_tasks": ("a.b, c", frozenset({"a.b", "c"})),
    "celery_broker": ("amqp://h/", "amqp://h/"),
    "celery_broker_file": ("broker.txt", "broker.txt"),
    "celery_queue": ("nightly", "nightly"),
    "celery_options": ('{"region": "r"}', {"region": "r"}),
    "celery_backend": ("redis://h/0", "redis://h/0"),
    "celery_backend_file": ("backend.txt", "backend.txt"),
    "celery_lost_after_ms": ("5000", 5_000),
    "channels": (
        '{"pager": {"kind": "command", "command": ["/bin/page"]}}',
        {"pager": CommandChannel(command=("/bin/page",))},
    ),
    "notify": ('{"to": "pager"}', {"to": ["pager"]}),
    "notify_wait_ms": ("0", 0),
    "notify_interval_ms": ("1000", 1_000),
    "kubernetes": ("in-cluster", "in-cluster"),
    "allowed_namespaces": ("team", frozenset({"team"})),
    "allowed_hosts": ("example.com", frozenset({"example.com"})),
    "drain_ms": ("0", 0),
    "workers": ("shared", "shared"),
    "lease_ms": ("5000", 5_000),
    "keep_days": ("forever", 0),
    "keep_runs": ("7", 7),
    "audit_keep_days": ("0", 0),
    "max_body": ("2048", 2_048),
    "max_page": ("10", 10),
    "process_folder": ("run", "run"),
    "output_mb": ("9", 9),
    "log_level": ("debug", "debug"),
    "log_format": ("json", "json"),
    "metrics_port": ("0", 0),
    "metrics_host": ("::1", "::1"),
}


def test_the_defaults_are_those_of_the_specification() -> None:
    settings = read_settings({}, {}).settings
    assert settings == Settings()
    assert {name: getattr(settings, name) for name in BARE} == {
        "tick_ms": 1_000,
        "lookahead_ms": 60_000,
        "max_catchup_per_tick": 100,
        "default_overlap_policy": "skip",
        "default_catchup_policy": "none",
        "default_jitter_ms": 0,
    }
    assert OTHERS.keys() == SETTINGS.keys()


@pytest.mark.parametrize("name", OTHERS)
def test_every_setting_can_stand_in_the_environment(name: str) -> None:
    text, value = OTHERS[name]
    for variable in [f"KRON_{name.upper()}", *([name.upper()] if name in BARE else [])]:
        effective = read_settings({variable: text}, {})
        assert getattr(effective.settings, name) == value
        assert effective.given[name].name == variable


def test_the_later_source_counts(tmp_path: Path) -> None:
    file = tmp_path / "kron.toml"
    file.write_text('tick_ms = 100\nstore = "memory://"\nport = 1\nallowed_hosts = ["a", "b"]\n')
    environment = {"TICK_MS": "200", "KRON_TICK_MS": "300", "KRON_PORT": "2", "KRON_CONFIG": str(file)}
    effective = read_settings(environment, {"port": 3, "store": None})
    settings = effective.settings
    assert (settings.tick_ms, settings.port, settings.store) == (300, 3, "memory://")
    assert settings.allowed_hosts == frozenset({"a", "b"})
    sources = {line["name"]: line["source"] for line in effective.rows()}
    assert [sources[name] for name in ("tick_ms", "port", "store", "host")] == [
        "environment",
        "option",
        "file",
        "default",
    ]


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        pytest.param("TICK_MS", "soon", id="no number"),
        pytest.param("KRON_TICK_MS", "0", id="too small"),
        pytest.param("KRON_LOOKAHEAD_MS", "99999999999999999999999", id="too large"),
        pytest.param("KRON_LOOKAHEAD_MS", "3600001", id="a lookahead that is too long"),
        pytest.param("KRON_MAX_CATCHUP_PER_TICK", "10001", id="too many missed periods in a tick"),
        pytest.param("DEFAULT_OVERLAP_POLICY", "maybe", id="no choice"),
        pytest.param("KRON_ALLOWED_TIMEZONES", "Mars/Olympus", id="no zone"),
        pytest.param("KRON_INSECURE", "maybe", id="neither true nor false"),
        pytest.param("KRON_DEFAULT_LAUNCHER", "{", id="no JSON"),
        pytest.param("KRON_DEFAULT_LAUNCHER", '{"kind": "rocket"}', id="no launcher"),
        pytest.param("KRON_TIKC_MS", "1", id="misspelt"),
        pytest.param("KRON_JWT_SKEW_S", "301", id="clocks that differ too much"),
        pytest.param("KRON_JWT_SECRET", "x" * 31, id="a secret too short"),
    ],
)
def test_what_is_wrong_is_refused_by_the_name_it_has_there(variable: str, text: str) -> None:
    with pytest.raises(InvalidSettingsError) as refused:
        read_settings({variable: text}, {})
    assert [problem.path for problem in refused.value.problems] == [variable]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("soon", "must be a whole number", id="no number"),
        pytest.param("1.5", "must be a whole number", id="a fraction"),
        pytest.param("-1", "outside 10-60000", id="below zero"),
    ],
)
def test_a_number_of_the_environment_is_refused_for_what_it_is_not(text: str, reason: str) -> None:
    with pytest.raises(InvalidSettingsError) as refused:
        read_settings({"KRON_TICK_MS": text}, {})
    assert str(refused.value) == f'Invalid settings: KRON_TICK_MS "{text}": {reason}'


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    file = tmp_path / "kron.toml"
    file.write_text('tik_ms = 1\nport = "x"\n')
    with pytest.raises(InvalidSettingsError) as refused:
        read_settings({"TICK_MS": "x"}, {}, file=str(file))
    assert len(refused.value.lines()) == 3
    with pytest.raises(UnreadableFileError, match=r'absent\.toml": No such file or directory$'):
        read_settings({}, {}, file=str(tmp_path / "absent.toml"))


def test_kron_config_shows_every_setting_and_no_password(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KRON_STORE", "postgresql://ann:s3cret@db/kron")
    monkeypatch.setenv("KRON_DEFAULT_LAUNCHER", '{"kind": "http", "url": "http://a:s3cret@h/"}')
    monkeypatch.setenv("KRON_EXECUTOR", '{"kind": "process", "command": "x", "env": {"KEY": "s3cret"}}')
    monkeypatch.setenv("KRON_JWT_KEYS", "https://a:s3cret@h/jwks")
    monkeypatch.setenv("KRON_SIGNING_SECRET", "this is a s3cret of ours, which nobody shows")
    assert run(["config", "--json"]) == GOOD
    assert "s3cret" not in repr(read_settings(os.environ, {}).settings)
    lines = json.loads(capsys.readouterr().out)
    assert [line["name"] for line in lines] == list(SETTINGS)
    assert lines[0]["value"] == "postgresql://ann:***@db/kron"
    assert "s3cret" not in json.dumps(lines)
    monkeypatch.setenv("KRON_STORE", "postgresql://ann@db/kron?sslmode=require&password=s3cret&user=b")
    assert run(["config", "--json"]) == GOOD
    (store, *_) = json.loads(capsys.readouterr().out)
    assert store["value"] == "postgresql://ann@db/kron?sslmode=require&password=***&user=b"
    assert run(["config"]) == GOOD
    assert "KRON_STORE" in capsys.readouterr().out
    monkeypatch.setenv("KRON_PORT", "-1")
    assert run(["config"]) == BAD
    assert "KRON_PORT" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("signing_secret", "s3cret"),
        ("signing_secret", "s3cret\n" * 9),
        ("executor", '{"kind": "workflow", "s3cret": 1}'),
        ("default_launcher", '{"kind": "workflow"}'),
        ("executor", "s3cret"),
        ("allowed_hosts", "http://example.com"),
    ],
)
def test_what_is_wrong_is_refused_and_no_secret_is_quoted(name: str, text: str) -> None:
    with pytest.raises(InvalidSettingsError) as refused:
        read_settings({f"KRON_{name.upper()}": text}, {})
    (problem,) = refused.value.problems
    assert problem.path == f"KRON_{name.upper()}"
    assert "s3cret" not in str(refused.value)


def test_a_secret_may_stand_in_a_file_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    settings = Settings(signing_secret_file=str(file), signing_secret=SECRET)
    with pytest.raises(UnreadableFileError):
        settings.secret()
    file.write_text("short\n")
    with pytest.raises(InputError, match=r"signing_secret_file .* at least 32") as refused:
        settings.secret()
    assert "short" not in str(refused.value)
    file.write_text("a secret in its own file, long enough\n")
    assert settings.secret() == b"a secret in its own file, long enough"
    assert Settings(signing_secret=SECRET).secret() == SECRET.encode()
    assert Settings().secret() is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, "sqlite:///from-file.db", id="the file"),
        pytest.param({"store": "memory://"}, "memory://", id="an option counts more"),
    ],
)
def test_the_store_may_be_named_in_a_file(options: dict[str, object], expected: str, tmp_path: Path) -> None:
    file = tmp_path / "store.txt"
    file.write_text("sqlite:///from-file.db\n")
    variables = {"KRON_STORE": "sqlite:///plain.db", "KRON_STORE_FILE": str(file)}
    assert read_settings(variables, options).settings.store_url == expected


def test_a_file_with_the_store_that_is_not_there_is_named(tmp_path: Path) -> None:
    settings = read_settings({"KRON_STORE_FILE": str(tmp_path / "absent")}, {}).settings
    with pytest.raises(UnreadableFileError, match="absent"):
        _ = settings.store_url
