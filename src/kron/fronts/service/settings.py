"""Settings of the service: typed, checked, and each with where it came from (SPEC 3: 11)."""

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kron.app.launchers import read_launcher
from kron.core.errors import InputError, InvalidOptionError, Problem, UnreadableFileError
from kron.core.job.fields import choice_of, count_in, parse_bool, parse_text, refuse, suggestion
from kron.core.job.policy import CATCHUP_NAMES, LOOKAHEAD_MS, OVERLAP_NAMES
from kron.core.time.zone import zone_of
from kron.fronts.service.auth.principal import Caller, parse_subjects
from kron.fronts.service.schedule_spec import Rules
from kron.launchers.celery.broker import QUEUE, Broker, parse_broker, parse_options
from kron.launchers.celery.spec import CeleryOptions, parse_name
from kron.launchers.http.egress import check_host, egress_policy_of
from kron.launchers.http.spec import HttpOptions
from kron.launchers.process.spec import ProcessOptions
from kron.launchers.spec import InvalidLauncherError, LauncherConfig

PREFIX = "KRON_"
DAY_MS = 86_400_000
# All workers have a part of the schedules; otherwise one leads, and the others wait.
SHARED = "shared"
LOG_LEVELS = ("debug", "info", "warning", "error")
# Workflows are kept in the store itself, unless a folder is named.
IN_STORE = "store"
LOG_FORMATS = ("console", "json")
# As long as what HS256 makes of it; a shorter secret could be guessed.
LEAST_SECRET = 32
SECRETS = ("jwt_secret", "signing_secret")
# Where a setting may come from; the later counts.
DEFAULT, FILE, ENVIRONMENT, OPTION = SOURCES = ("default", "file", "environment", "option")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything the service can be told; a list that is None allows everything.

    What may hold a secret is not in its `repr`, which ends up in logs.
    """

    store: str = field(default="sqlite:///kron.db", repr=False)
    store_file: str | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    insecure: bool = False
    tick_ms: int = 1_000
    lookahead_ms: int = LOOKAHEAD_MS
    max_catchup_per_tick: int = 100
    default_overlap_policy: str = "skip"
    default_catchup_policy: str = "none"
    default_jitter_ms: int = 0
    default_launcher: Mapping[str, object] | None = field(default=None, repr=False)
    executor: Mapping[str, object] | None = field(default=None, repr=False)
    workflows: str = IN_STORE
    signing_secret: str | None = field(default=None, repr=False)
    signing_secret_file: str | None = None
    allowed_timezones: frozenset[str] | None = None
    allowed_commands: frozenset[str] = frozenset()
    allowed_tasks: frozenset[str] = frozenset()
    allowed_hosts: frozenset[str] | None = None
    celery_broker: str | None = field(default=None, repr=False)
    celery_broker_file: str | None = None
    celery_queue: str = QUEUE
    celery_options: Mapping[str, object] = field(default_factory=dict, repr=False)
    drain_ms: int = 30_000
    workers: str = "leader"
    lease_ms: int = 30_000
    max_body: int = 1_048_576
    max_page: int = 1_000
    process_folder: str = ".kron/processes"
    log_level: str = "info"
    log_format: str = "console"
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    jwt_keys: str | None = field(default=None, repr=False)
    jwt_secret: str | None = field(default=None, repr=False)
    jwt_secret_file: str | None = None
    jwt_audience: str = "kron"
    jwt_issuer: str | None = None
    jwt_skew_s: int = 60
    tls_certificate: str | None = None
    tls_key: str | None = None
    tls_client_authorities: str | None = None
    client_subjects: Mapping[str, Caller] = field(default_factory=dict)
    requests_per_s: int = 100
    patience_s: int = 30
    max_schedules: int = 10_000
    min_interval_s: int = 0

    @property
    def rules(self) -> Rules:
        """Return what holds for schedules that come from outside."""
        return Rules(
            overlap_policy=self.default_overlap_policy,
            catchup_policy=self.default_catchup_policy,
            jitter_ms=self.default_jitter_ms,
            lookahead_ms=self.lookahead_ms,
            min_interval_s=self.min_interval_s,
            max_schedules=self.max_schedules,
            launcher=self.default_launcher,
            timezones=self.allowed_timezones,
            launchers=self.launcher_config(),
            executor=self.executor,
        )

    def launcher_config(self, *, broker: Broker | None = None) -> LauncherConfig:
        """Return the limits of schedules' launchers; a worker's also has the broker, perhaps from a file."""
        default = None if self.default_launcher is None else read_launcher(self.default_launcher)
        return LauncherConfig(
            (
                ProcessOptions(folder=self.process_folder, allowed_commands=self.allowed_commands),
                HttpOptions(egress=egress_policy_of(self.allowed_hosts)),
                CeleryOptions(broker=broker, allowed_tasks=self.allowed_tasks),
            ),
            default,
        )

    @property
    def broker(self) -> Broker | None:
        """Return where tasks are published, if anywhere."""
        file, url = self.celery_broker_file, self.celery_broker
        url = url if file is None else parse_broker(_text_in(file))
        return None if url is None else Broker(url=url, queue=self.celery_queue, options=self.celery_options)

    @property
    def store_url(self) -> str:
        """Return where schedules and runs are kept, from the file where one is named."""
        return self.store if self.store_file is None else _text_in(self.store_file)

    def secret(self) -> bytes | None:
        """Return what requests are signed with, if anything."""
        secret = self.secret_of("signing_secret")
        return None if secret is None else secret.encode()

    def has_secret(self, name: str) -> bool:
        """Say whether a secret is set, here or in a file."""
        return getattr(self, name) is not None or getattr(self, f"{name}_file") is not None

    def secret_of(self, name: str) -> str | None:
        """Return a secret, from its file where that is named."""
        path = getattr(self, f"{name}_file")
        if path is None:
            secret: str | None = getattr(self, name)
            return secret
        text = _text_in(path)
        try:
            return _secret(text)
        except InputError as cause:
            reason = str(cause.details["reason"])
            raise InvalidOptionError(option=f"{name}_file", value=path, reason=reason) from None


class InvalidSettingsError(InputError):
    """One or more settings are wrong, each with its name where it stands."""

    code = "invalid_settings"

    def __init__(self, *, problems: list[Problem]) -> None:
        super().__init__(f"Invalid settings: {'; '.join(map(str, problems))}", problems=tuple(problems))
        self.problems = tuple(problems)

    def lines(self) -> list[str]:
        """Return one line for each problem."""
        return [f"Invalid settings: {problem}" for problem in self.problems]


class SettingValue(NamedTuple):
    """A value somebody gave, where, and under which name."""

    value: object
    source: str
    name: str


class Effective(NamedTuple):
    """The settings that hold, and where each came from."""

    settings: Settings
    found: Mapping[str, SettingValue]


def _text_in(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as cause:
        reason = cause.strerror if isinstance(cause, OSError) else "it is not UTF-8"
        raise UnreadableFileError(file=path, reason=str(reason)) from cause


def _words(value: object) -> frozenset[str]:
    """Return a list of words; in the environment they are separated by commas."""
    words = [word.strip() for word in value.split(",")] if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise refuse(value, "must be a list of texts")
    return frozenset(filter(None, words))


def _zones(value: object) -> frozenset[str]:
    return frozenset(zone_of(word).key for word in _words(value))


def _count(low: int, high: int) -> Callable[[object], int]:
    read = count_in(low, high)

    def parse(value: object) -> int:
        text = value.strip() if isinstance(value, str) else ""
        return read(int(text) if text.isascii() and text.isdigit() and len(text) < 19 else value)

    return parse


def _truth(value: object) -> bool:
    text = value.strip().lower() if isinstance(value, str) else ""
    return parse_bool({"true": True, "1": True, "false": False, "0": False}.get(text, value))


def _hosts(value: object) -> frozenset[str]:
    return frozenset(check_host(word) for word in _words(value))


def _launcher(value: object) -> Mapping[str, object]:
    """Return a launcher object, in the environment as JSON. It may hold a password, so it is not quoted."""
    try:
        document = json.loads(value) if isinstance(value, str) else value
        if isinstance(document, Mapping) and document.get("kind") == "workflow":
            raise refuse("...", "kind workflow is how schedules without a launcher start anyway")
        read_launcher(document)
    except InvalidLauncherError as cause:
        raise refuse("...", str(cause.details["reason"])) from cause
    except ValueError as cause:
        raise refuse("...", f"must be a JSON object: {cause}") from cause
    assert isinstance(document, Mapping)
    return document


def _secret(value: object) -> str:
    """Return a secret; a wrong one is not quoted."""
    if not isinstance(value, str) or len(value.encode()) < LEAST_SECRET or not value.isprintable():
        raise refuse("...", f"must be a text of at least {LEAST_SECRET} bytes")
    return value


def _subjects(value: object) -> Mapping[str, Caller]:
    """Return who may call with which certificate, in the environment as JSON."""
    try:
        document = json.loads(value) if isinstance(value, str) else value
    except ValueError as cause:
        raise refuse("...", f"must be a JSON object: {cause}") from cause
    return parse_subjects(document)


# How each is read, and what it is for.
SETTINGS: dict[str, tuple[Callable[[object], object], str]] = {
    "store": (parse_text, "where schedules and runs are kept, as a URL"),
    "store_file": (parse_text, "a file with that URL instead"),
    "host": (parse_text, "the address the API listens on"),
    "port": (_count(0, 65_535), "its port; 0 takes a free one"),
    "insecure": (_truth, "whether the API may listen on an address that others can reach"),
    "tick_ms": (_count(10, 60_000), "how long a change by another process may stay unseen"),
    "lookahead_ms": (_count(1_000, 3_600_000), "how wide `spread` is, and the grace of a take-over"),
    "max_catchup_per_tick": (_count(1, 10_000), "how many missed periods of a schedule start in one wake"),
    "default_overlap_policy": (
        choice_of({name: name for name in OVERLAP_NAMES}),
        "for schedules that name none",
    ),
    "default_catchup_policy": (
        choice_of({name: name for name in CATCHUP_NAMES}),
        "for schedules that name none",
    ),
    "default_jitter_ms": (_count(0, LOOKAHEAD_MS), "for schedules that name none"),
    "default_launcher": (_launcher, "the launcher object of schedules that have none"),
    "executor": (_launcher, "the launcher object of what runs workflows; it gets their DAG JSON"),
    "workflows": (parse_text, "where workflows are kept: `store`, or a folder"),
    "signing_secret": (_secret, "what requests to executors are signed with; without it, they are not"),
    "signing_secret_file": (parse_text, "a file with that secret instead"),
    "allowed_timezones": (_zones, "the zones schedules may have; without it, all"),
    "allowed_commands": (_words, "the programs schedules may start; without it, none"),
    "allowed_tasks": (_words, "the Celery tasks schedules may start; without it, none"),
    "allowed_hosts": (_hosts, "the hosts schedules may send requests to; without it, all that are public"),
    "celery_broker": (parse_broker, "the broker that Celery tasks are published to, as a URL"),
    "celery_broker_file": (parse_text, "a file with that URL instead, as it may hold a password"),
    "celery_queue": (parse_name, "the queue of tasks whose launcher names none"),
    "celery_options": (parse_options, "options for what carries tasks to the broker, as JSON"),
    "drain_ms": (_count(0, DAY_MS), "how long a stop waits for what runs"),
    "workers": (
        choice_of({name: name for name in ("leader", SHARED)}),
        "whether one worker looks after all schedules, or all share them",
    ),
    "lease_ms": (_count(1_000, 600_000), "how long after its death a worker is followed, on PostgreSQL"),
    "max_body": (_count(1_024, 1 << 30), "the largest request, and the longest line of a bulk one, in bytes"),
    "max_page": (_count(1, 10_000), "the most entries of one page"),
    "process_folder": (parse_text, "where the outputs of processes are while they run"),
    "log_level": (choice_of({name: name for name in LOG_LEVELS}), "what is logged"),
    "log_format": (choice_of({name: name for name in LOG_FORMATS}), "lines for people, or JSON lines"),
    "metrics_port": (_count(0, 65_535), "where a worker alone shows its metrics; without it, nowhere"),
    "metrics_host": (parse_text, "the address a worker alone shows its metrics on"),
    "jwt_keys": (
        parse_text,
        "the public keys that tokens are checked by: a JWK set, as a file or address",
    ),
    "jwt_secret": (_secret, "a secret that tokens are signed with (HS256)"),
    "jwt_secret_file": (parse_text, "a file with that secret instead"),
    "jwt_audience": (parse_text, "for whom tokens must be made out"),
    "jwt_issuer": (parse_text, "by whom tokens must be made out; without it, by anybody with a key"),
    "jwt_skew_s": (_count(0, 300), "how far clocks may differ, in seconds"),
    "tls_certificate": (parse_text, "the server's certificate, as a PEM file; without it, plain HTTP"),
    "tls_key": (parse_text, "its private key, as a PEM file"),
    "tls_client_authorities": (parse_text, "who signs the certificates of clients, as a PEM file"),
    "client_subjects": (
        _subjects,
        "who may call with which certificate",
    ),
    "requests_per_s": (_count(0, 100_000), "how often a caller who says who they are may ask"),
    "patience_s": (_count(1, 3_600), "how long a request may pause while it comes in"),
    "max_schedules": (_count(0, 100_000_000), "how many schedules one user may have"),
    "min_interval_s": (_count(0, 86_400), "how close two times of one schedule may be"),
}
# What only commands read: the file of settings, and which server they ask, with what.
OF_COMMANDS = ("config", "server", "token")
# The names of SPEC 3, which also work as they stand there.
BARE = (
    "tick_ms", "lookahead_ms", "max_catchup_per_tick",
    "default_overlap_policy", "default_catchup_policy", "default_jitter_ms",
)  # fmt: skip


def read_settings(
    environment: Mapping[str, str], options: Mapping[str, object], *, file: str | None = None
) -> Effective:
    """Return what holds, or raise with everything that is wrong; an option that is None is absent."""
    found = _in_file(file or environment.get(f"{PREFIX}CONFIG"))
    problems = _misspelt(environment)
    for name in SETTINGS:
        upper = name.upper()
        for variable in ([upper] if name in BARE else []) + [PREFIX + upper]:
            if variable in environment:
                found[name] = SettingValue(environment[variable], ENVIRONMENT, variable)
        if options.get(name) is not None:
            found[name] = SettingValue(options[name], OPTION, f"--{name.replace('_', '-')}")
    _prefer_later(found, "store_file", "store")
    values: dict[str, object] = {}
    for name, (value, _, place) in found.items():
        if name not in SETTINGS:
            problems.append(Problem(place, None, f"unknown setting; {suggestion(name, SETTINGS)}"))
            continue
        try:
            values[name] = SETTINGS[name][0](value)
        except InputError as error:
            quoted = error.details.get("value", value)
            problems.append(Problem(place, quoted, str(error.details.get("reason", error))))
    problems += _doubled(found)
    if problems:
        raise InvalidSettingsError(problems=problems)
    return Effective(Settings(**values), found)  # type: ignore[arg-type]


def _prefer_later(found: dict[str, SettingValue], file: str, plain: str) -> None:
    """Leave out the name of a file where what it holds is said itself in a place that counts more."""
    both = file in found and plain in found
    if both and SOURCES.index(found[plain].source) > SOURCES.index(found[file].source):
        del found[file]


def _in_file(path: str | None) -> dict[str, SettingValue]:
    if path is None:
        return {}
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as cause:
        raise UnreadableFileError(file=path, reason=str(cause)) from cause
    return {name: SettingValue(value, FILE, f"{path}: {name}") for name, value in document.items()}


def _doubled(found: Mapping[str, SettingValue]) -> list[Problem]:
    """Return the secrets that are given twice: nobody could say which of the two counts."""
    twice = [name for name in SECRETS if name in found and f"{name}_file" in found]
    files = {name: found[f"{name}_file"] for name in twice}
    return [Problem(file.name, file.value, f"{name} is set too; use one") for name, file in files.items()]


def _misspelt(environment: Mapping[str, str]) -> list[Problem]:
    """Return the variables that are meant for Kron and that nobody reads."""
    known = {PREFIX + name.upper() for name in (*SETTINGS, *OF_COMMANDS)}
    return [
        Problem(name, None, f"unknown setting; {suggestion(name, sorted(known))}")
        for name in sorted(environment)
        if name.startswith(PREFIX) and name not in known
    ]
