"""Settings of the service: one table of names, types, defaults, parsers and help (SPEC 3: 11)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from kron.app.launchers import read_launcher
from kron.app.notify.channel import DEFAULT_NOTIFY as NOTIFY
from kron.app.notify.channel import SENSITIVE as CHANNELS
from kron.app.notify.channel import Channel, default_of, parse_channels, parse_default
from kron.app.notify.sender import NotifyOptions
from kron.app.output import RunOutputs
from kron.app.redaction import BROKER, LAUNCHER, OPTIONS, SECRET, SECRETS, URL
from kron.app.retention import RetentionPolicy
from kron.app.settings import (
    Effective,
    SettingsReader,
    boolean,
    integer,
    json_value,
    setting,
    text_in,
    words,
)
from kron.core.errors import InputError, InvalidOptionError
from kron.core.fields import choice_of, invalid_value, parse_text
from kron.core.job.notify import Notify
from kron.core.job.policy import CATCHUP_NAMES, LOOKAHEAD_MS, MAX_LOOKAHEAD_MS, OVERLAP_NAMES
from kron.core.plan.outbox import SendLimits
from kron.core.time.steady import DAY_MS
from kron.core.time.zone import zone_of
from kron.fronts.service.auth.principal import Caller, parse_subjects
from kron.fronts.service.schedule_spec import Rules
from kron.launchers.celery.broker import QUEUE, Broker, parse_backend, parse_broker, parse_options
from kron.launchers.celery.spec import CeleryOptions, parse_name
from kron.launchers.dag import DagSettings
from kron.launchers.delivery import MAX_REQUESTS
from kron.launchers.http.egress import check_host, egress_policy_of
from kron.launchers.http.spec import HttpOptions
from kron.launchers.kubernetes.access import ClusterAccess, access_named
from kron.launchers.kubernetes.spec import KubernetesOptions, parse_dns_name
from kron.launchers.plugin import PluginOptions
from kron.launchers.process.spec import ProcessOptions, parse_allowed_command, parse_variable
from kron.launchers.secret import REFERENCE, Vault
from kron.launchers.spec import InvalidLauncherError, LauncherConfig
from kron.telemetry.log_format import LOG_FORMATS, LOG_LEVELS

MAX_DAYS = 36_500
# All workers share the schedules; otherwise one runs them all, and the others stand by.
SHARED = "shared"
# Workflows are stored in the store itself, unless a folder is named.
IN_STORE = "store"
# The length of an HS256 digest; a shorter secret could be guessed.
MIN_SECRET = 32
SECRET_NAMES = ("jwt_secret", "signing_secret")
# Variables that only commands read: the settings file, and which server they call with which token.
COMMAND_VARIABLES = ("config", "debug", "server", "token")


def _zones(value: object) -> frozenset[str]:
    return frozenset(zone_of(word).key for word in words(value))


def _hosts(value: object) -> frozenset[str]:
    return frozenset(check_host(word) for word in words(value))


def _names(value: object) -> frozenset[str]:
    """Return the names and addresses of hosts, in lower case; a network or a port is none."""
    return frozenset(_host_name(word) for word in words(value))


def _host_name(word: str) -> str:
    name = word.lower().removeprefix("[").removesuffix("]")
    if "/" in check_host(name):
        raise invalid_value(word, "must be a host's name or an address, without a port")
    return name


def _commands(value: object) -> frozenset[str]:
    return frozenset(parse_allowed_command(word) for word in words(value))


def _namespaces(value: object) -> frozenset[str]:
    return frozenset(parse_dns_name(word) for word in words(value))


def _variables(value: object) -> frozenset[str]:
    return frozenset(parse_variable(word) for word in words(value))


def _launcher(value: object) -> Mapping[str, object]:
    """Return a launcher object. It may hold a password, so it is not quoted."""
    document = json_value(value)
    if isinstance(document, Mapping) and document.get("kind") == "workflow":
        raise invalid_value("...", "kind workflow is the default of schedules without a launcher")
    try:
        read_launcher(document)
    except InvalidLauncherError as cause:
        raise invalid_value("...", str(cause.details["reason"])) from cause
    assert isinstance(document, Mapping)
    return document


def _secret(value: object) -> str:
    """Return a secret; an invalid one is not quoted."""
    if not isinstance(value, str) or len(value.encode()) < MIN_SECRET or not value.isprintable():
        raise invalid_value("...", f"must be a string of at least {MIN_SECRET} bytes")
    return value


def _keys(value: object) -> tuple[str, ...]:
    """Return keys in their order; an invalid one is not quoted."""
    listed = [word.strip() for word in value.split(",")] if isinstance(value, str) else value
    if not isinstance(listed, list):
        raise invalid_value("...", "must be a list of keys")
    return tuple(map(_secret, listed))


def _sources(value: object) -> Mapping[str, str]:
    """Return where the secrets that launchers may name are."""
    document = json_value(value)
    if not isinstance(document, Mapping):
        raise invalid_value("...", "must be an object of names, each with env:VARIABLE or file:/PATH")
    for name, place in document.items():
        is_place = (
            isinstance(place, str) and place.startswith(("env:", "file:/")) and len(place) > len("env:")
        )
        if not is_place or REFERENCE.fullmatch(f"${{secret:{name}}}") is None:
            raise invalid_value(name, "must be a name without spaces, for env:VARIABLE or file:/PATH")
    return {str(name): str(place) for name, place in document.items()}


def _subjects(value: object) -> Mapping[str, Caller]:
    """Return the callers by the subject of their certificate."""
    return parse_subjects(json_value(value))


def _caller_names(subjects: Mapping[str, Caller]) -> dict[str, str]:
    return {subject: caller.name for subject, caller in subjects.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be configured; the help of each setting is its documentation."""

    store: str = setting(
        parse_text, "Store of schedules and runs, as a URL", default="sqlite:///kron.db", sensitive=URL
    )
    store_file: str | None = setting(
        parse_text, "File with the store URL, which may contain a password", default=None, file_of="store"
    )
    host: str = setting(parse_text, "Address the API listens on", default="127.0.0.1")
    port: int = setting(integer(0, 65_535), "Port of the API; 0 picks a free one", default=8080)
    insecure: bool = setting(
        boolean, "Allow a public address without authentication: every caller is admin", default=False
    )
    trusted_hosts: frozenset[str] | None = setting(
        _names,
        "Names this service is reached by, as in the `Host` header, besides its address and loopback; "
        "none: any with authentication, no other without",
        default=None,
    )
    tick_ms: int = setting(
        integer(10, 60_000),
        "Polling interval for changes by other processes, and the interval of `max_catchup_per_tick`, ms",
        default=1_000,
        bare=True,
    )
    lookahead_ms: int = setting(
        integer(1_000, MAX_LOOKAHEAD_MS),
        "Width of `spread`, grace period after a take-over, and the largest jitter, ms",
        default=LOOKAHEAD_MS,
        bare=True,
    )
    max_catchup_per_tick: int = setting(
        integer(1, 10_000),
        "Missed periods that a worker starts per `tick_ms`, over all schedules",
        default=100,
        bare=True,
    )
    default_overlap_policy: str = setting(
        choice_of({name: name for name in OVERLAP_NAMES}),
        "Overlap policy of schedules that set none",
        default="skip",
        bare=True,
    )
    default_catchup_policy: str = setting(
        choice_of({name: name for name in CATCHUP_NAMES}),
        "Catch-up policy of schedules that set none",
        default="none",
        bare=True,
    )
    default_jitter_ms: int = setting(
        integer(0, MAX_LOOKAHEAD_MS), "Jitter of schedules that set none, ms", default=0, bare=True
    )
    default_launcher: Mapping[str, object] | None = setting(
        _launcher, "Launcher of schedules that set none, as JSON", default=None, sensitive=LAUNCHER
    )
    executor: Mapping[str, object] | None = setting(
        _launcher,
        "Launcher that executes workflows, as JSON; it receives their DAG",
        default=None,
        sensitive=LAUNCHER,
    )
    workflows: str = setting(
        parse_text, "Where workflow versions are stored: `store`, or a folder", default=IN_STORE
    )
    signing_secret: str | None = setting(
        _secret,
        "Secret that signs requests to executors, at least 32 bytes; none: unsigned",
        default=None,
        sensitive=SECRET,
    )
    signing_secret_file: str | None = setting(
        parse_text, "File with the signing secret", default=None, file_of="signing_secret", exclusive=True
    )
    secret_keys: tuple[str, ...] = setting(
        _keys,
        "Keys that encrypt secrets of launchers and notifications in the store, each at least 32 bytes; "
        "the first encrypts, all decrypt; none: stored as they are",
        default=(),
        sensitive=SECRETS,
    )
    secret_keys_file: str | None = setting(
        parse_text,
        "File with the keys, one per line",
        default=None,
        file_of="secret_keys",
        exclusive=True,
    )
    launcher_secrets: Mapping[str, str] = setting(
        _sources,
        "Secrets that headers and variables of launchers may name as `${secret:NAME}`, as JSON: "
        "NAME to `env:VARIABLE` or `file:/PATH`; a name `ann/x` is for the user ann only",
        default={},
    )
    allowed_timezones: frozenset[str] | None = setting(
        _zones, "Time zones schedules may use; none: all", default=None
    )
    allowed_commands: frozenset[str] = setting(
        _commands, "Commands schedules may run, as absolute paths; none: no command", default=frozenset()
    )
    allowed_variables: frozenset[str] = setting(
        _variables,
        "Environment variables schedules may set for their commands, besides `KRON_VAR_*`",
        default=frozenset(),
    )
    inherited_variables: frozenset[str] = setting(
        words,
        "Variables of the worker's environment that processes get, besides `PATH`, `HOME` and the like",
        default=frozenset(),
    )
    allowed_launchers: frozenset[str] = setting(
        words,
        "Launcher kinds of installed packages that schedules may use; none: no such kind",
        default=frozenset(),
    )
    allowed_tasks: frozenset[str] = setting(
        words, "Celery tasks schedules may send; none: no task", default=frozenset()
    )
    allowed_hosts: frozenset[str] | None = setting(
        _hosts,
        "Hosts schedules may send requests to: names, addresses, networks; none: all public hosts",
        default=None,
    )
    kubernetes: str | None = setting(
        parse_text,
        "Cluster that Jobs are created in: `in-cluster`, or the path of a kubeconfig; none: no Job",
        default=None,
    )
    allowed_namespaces: frozenset[str] = setting(
        _namespaces, "Namespaces schedules may create Jobs in; none: no namespace", default=frozenset()
    )
    celery_broker: str | None = setting(
        parse_broker,
        "Broker that Celery tasks are published to, as a URL",
        default=None,
        sensitive=BROKER,
    )
    celery_broker_file: str | None = setting(
        parse_text, "File with the broker URL, which may contain a password", default=None
    )
    celery_queue: str = setting(parse_name, "Queue of Celery tasks that name none", default=QUEUE)
    celery_options: Mapping[str, object] = setting(
        parse_options, "Transport options of the broker, as JSON", default={}, sensitive=OPTIONS
    )
    celery_backend: str | None = setting(
        parse_backend,
        "Result backend of Celery tasks whose end is awaited, as a URL",
        default=None,
        sensitive=URL,
    )
    celery_backend_file: str | None = setting(
        parse_text, "File with the URL of the result backend, which may contain a password", default=None
    )
    celery_lost_after_ms: int = setting(
        integer(1_000, DAY_MS),
        "A started Celery task that reports nothing for this long counts as lost, ms",
        default=60_000,
    )
    channels: Mapping[str, Channel] = setting(
        parse_channels,
        "Channels that notifications of schedules may name, as JSON or a table",
        default={},
        sensitive=CHANNELS,
    )
    notify: Mapping[str, object] | None = setting(
        parse_default,
        "Notifications of schedules that set none, as JSON or a table",
        default=None,
        sensitive=NOTIFY,
    )
    notify_wait_ms: int = setting(
        integer(0, DAY_MS),
        "How long a notification waits for others to the same target, to be sent in one message, ms",
        default=10_000,
    )
    notify_interval_ms: int = setting(
        integer(0, DAY_MS), "Shortest interval between two messages to the same target, ms", default=60_000
    )
    drain_ms: int = setting(
        integer(0, DAY_MS),
        "Drain timeout: how long a stop waits for running executions, ms",
        default=30_000,
    )
    workers: str = setting(
        choice_of({name: name for name in ("leader", SHARED)}),
        "`leader`: one worker runs all schedules, the others stand by; `shared`: all workers share them",
        default="leader",
    )
    lease_ms: int = setting(
        integer(1_000, 600_000),
        "Lease TTL: a crashed worker's schedules are taken over after this, ms (PostgreSQL)",
        default=30_000,
    )
    keep_days: int = setting(
        integer(0, MAX_DAYS, forever=0),
        "Retention: runs that ended longer ago are pruned, days; 0 or `forever` keeps them",
        default=90,
    )
    keep_runs: int = setting(
        integer(0, 1_000_000), "Retention: the last runs of each schedule stay at any age", default=100
    )
    audit_keep_days: int = setting(
        integer(0, MAX_DAYS, forever=0),
        "Retention: older audit records are pruned, days; 0 or `forever` keeps them",
        default=365,
    )
    max_body: int = setting(
        integer(1_024, 1 << 30),
        "Largest request body, and longest line of a bulk request, bytes",
        default=1_048_576,
    )
    max_page: int = setting(integer(1, 10_000), "Largest page of a listing", default=1_000)
    process_folder: str = setting(
        parse_text, "Folder for the outputs of processes", default=".kron/processes"
    )
    output_mb: int = setting(
        integer(1, 1_000_000),
        "Total size of the kept outputs of ended processes, MB; "
        "beyond it the oldest of the user who keeps the most are removed",
        default=256,
    )
    log_level: str = setting(
        choice_of({name: name for name in LOG_LEVELS}),
        "Log level: `debug`, `info`, `warning` or `error`",
        default="info",
    )
    log_format: str = setting(
        choice_of({name: name for name in LOG_FORMATS}),
        "Log format: `console`, `json` or `journal`",
        default="console",
    )
    metrics_port: int | None = setting(
        integer(0, 65_535), "Port of a worker's metrics and health; none: not served", default=None
    )
    metrics_host: str = setting(parse_text, "Address of a worker's metrics and health", default="127.0.0.1")
    jwt_keys: str | None = setting(
        parse_text,
        "Public keys that verify tokens: a JWK set, as a file or URL",
        default=None,
        sensitive=URL,
    )
    jwt_secret: str | None = setting(
        _secret, "Secret that verifies tokens (HS256), at least 32 bytes", default=None, sensitive=SECRET
    )
    jwt_secret_file: str | None = setting(
        parse_text, "File with the token secret", default=None, file_of="jwt_secret", exclusive=True
    )
    jwt_audience: str = setting(parse_text, "Required audience of tokens", default="kron")
    jwt_issuer: str | None = setting(parse_text, "Required issuer of tokens; none: any", default=None)
    jwt_skew_s: int = setting(integer(0, 300), "Clock skew accepted in tokens, seconds", default=60)
    tls_certificate: str | None = setting(
        parse_text, "TLS certificate of the server, PEM file; none: plain HTTP", default=None
    )
    tls_key: str | None = setting(parse_text, "Private key of the certificate, PEM file", default=None)
    tls_client_authorities: str | None = setting(
        parse_text, "Certificate authorities of clients, PEM file", default=None
    )
    client_subjects: Mapping[str, Caller] = setting(
        _subjects,
        "Callers by the subject of their client certificate, as JSON or a table",
        default={},
        show=_caller_names,
    )
    requests_per_s: int = setting(
        integer(0, 100_000),
        "Rate limit per authenticated caller, requests per second; 0: no limit",
        default=100,
    )
    patience_s: int = setting(
        integer(1, 3_600),
        "Read timeout: how long a request may stall while it is received, seconds",
        default=30,
    )
    max_schedules: int = setting(
        integer(0, 100_000_000), "Schedules per user; 0: no limit, and none for admins", default=10_000
    )
    max_workflow_versions: int = setting(
        integer(0, 100_000_000),
        "Versions of workflows per user, drafts included; 0: no limit, and none for admins",
        default=10_000,
    )
    max_running: int = setting(
        integer(1, 10_000),
        "Requests in flight to executors, and running processes, per user and kind; the others wait in turn",
        default=MAX_REQUESTS,
    )
    max_open_runs: int = setting(
        integer(0, 100_000_000),
        "Open runs per user: those that wait or run. Beyond that, schedules that have an open run "
        "start no other, and requested runs are refused; 0: no limit",
        default=10_000,
    )
    min_interval_s: int = setting(
        integer(0, 86_400), "Shortest interval between two periods of a schedule, seconds", default=0
    )

    @property
    def rules(self) -> Rules:
        """Return the defaults and limits of schedules."""
        if self.default_jitter_ms > self.lookahead_ms:
            reason = f"is longer than lookahead_ms, {self.lookahead_ms}: lower it, or raise lookahead_ms"
            raise InvalidOptionError(option="default_jitter_ms", value=self.default_jitter_ms, reason=reason)
        return Rules(
            overlap_policy=self.default_overlap_policy,
            catchup_policy=self.default_catchup_policy,
            jitter_ms=self.default_jitter_ms,
            lookahead_ms=self.lookahead_ms,
            min_interval_s=self.min_interval_s,
            max_schedules=self.max_schedules,
            max_open_runs=self.max_open_runs,
            max_workflow_versions=self.max_workflow_versions,
            launcher=self.default_launcher,
            timezones=self.allowed_timezones,
            launchers=self.launcher_config(),
            executor=self.executor,
            runs_dags=self.executor is not None and self.executor.get("kind") == DagSettings.kind,
            vault=self.vault(),
            channels={
                name: None if channel.users is None else frozenset(channel.users)
                for name, channel in self.channels.items()
            },
            notify=self._sealed(self.default_notify),
        )

    def _sealed(self, notify: Notify | None) -> Notify | None:
        """Return notifications as a store keeps them: with their URLs encrypted, if there is a key."""
        vault = self.vault()
        return notify if notify is None or vault is None else vault.seal_notify(notify)

    @property
    def default_notify(self) -> Notify | None:
        """Return the notifications of schedules that set none."""
        return default_of(self.notify, self.channels)

    @property
    def has_users(self) -> bool:
        """Return whether callers are users: without tokens and certificates everyone is admin."""
        return self.jwt_keys is not None or self.has_secret("jwt_secret") or bool(self.client_subjects)

    def notify_options(self) -> NotifyOptions:
        """Return how a worker notifies."""
        default = self.default_notify
        own = [] if default is None else [url for _, url in default.urls()]
        vault = self.vault()
        return NotifyOptions(
            channels=self.channels,
            default=self._sealed(default),
            open_target=str if vault is None else vault.open_target,
            limits=SendLimits(self.notify_wait_ms, self.notify_interval_ms),
            egress=egress_policy_of(self.allowed_hosts, urls=own),
            secret=self.secret(),
            are_apart=self.has_users,
        )

    def outputs(self) -> RunOutputs:
        """Return the outputs of the processes on this host."""
        return RunOutputs(
            Path(self.process_folder), max_bytes=self.output_mb * 1_000_000, secret=self.secret()
        )

    def worker_launchers(self) -> LauncherConfig:
        """Return the launchers of a worker: the limits of schedules, the broker and the cluster."""
        return self.launcher_config(celery=self.celery, cluster=self.cluster())

    def cluster(self) -> ClusterAccess | None:
        """Return the access to the cluster of Jobs, if one is configured."""
        return None if self.kubernetes is None else access_named(self.kubernetes)

    def launcher_config(
        self, *, celery: CeleryOptions | None = None, cluster: ClusterAccess | None = None
    ) -> LauncherConfig:
        """Return the limits of schedules' launchers."""
        default = None if self.default_launcher is None else read_launcher(self.default_launcher)
        return LauncherConfig(
            (
                ProcessOptions(
                    folder=self.process_folder,
                    allowed_commands=self.allowed_commands,
                    allowed_variables=self.allowed_variables,
                    inherited=self.inherited_variables,
                    max_per_tenant=self.max_running,
                ),
                PluginOptions(allowed_launchers=self.allowed_launchers),
                HttpOptions(egress=egress_policy_of(self.allowed_hosts), max_per_tenant=self.max_running),
                replace(celery or CeleryOptions(), allowed_tasks=self.allowed_tasks),
                KubernetesOptions(access=cluster, allowed_namespaces=self.allowed_namespaces),
            ),
            default,
        )

    def vault(self) -> Vault | None:
        """Return what seals and opens the secrets of launchers, or None if nothing is configured for it."""
        keys = self.secret_keys
        if self.secret_keys_file is not None:
            keys = self._keys_in(self.secret_keys_file)
        return Vault(keys, self.launcher_secrets) if keys or self.launcher_secrets else None

    @staticmethod
    def _keys_in(path: str) -> tuple[str, ...]:
        try:
            return tuple(_secret(line.strip()) for line in text_in(path).splitlines() if line.strip())
        except InputError as cause:
            reason = str(cause.details["reason"])
            raise InvalidOptionError(option="secret_keys_file", value=path, reason=reason) from None

    @property
    def retention(self) -> RetentionPolicy:
        """Return how long history is kept."""
        return RetentionPolicy(
            keep=timedelta(days=self.keep_days) if self.keep_days else None,
            keep_runs=self.keep_runs,
            audit_keep=timedelta(days=self.audit_keep_days) if self.audit_keep_days else None,
        )

    @property
    def broker(self) -> Broker | None:
        """Return the broker of Celery tasks, if one is configured."""
        file, url = self.celery_broker_file, self.celery_broker
        url = url if file is None else parse_broker(text_in(file))
        return None if url is None else Broker(url=url, queue=self.celery_queue, options=self.celery_options)

    @property
    def celery(self) -> CeleryOptions:
        """Return the broker and the result backend of Celery tasks, with no limits on tasks."""
        file, backend = self.celery_backend_file, self.celery_backend
        return CeleryOptions(
            broker=self.broker,
            backend=backend if file is None else parse_backend(text_in(file)),
            lost_after=timedelta(milliseconds=self.celery_lost_after_ms),
        )

    @property
    def store_url(self) -> str:
        """Return the URL of the store, from its file if one is named."""
        return self.store if self.store_file is None else text_in(self.store_file)

    def secret(self) -> bytes | None:
        """Return the secret that signs requests, if one is configured."""
        secret = self.secret_of("signing_secret")
        return None if secret is None else secret.encode()

    def has_secret(self, name: str) -> bool:
        """Return whether a secret is configured, here or in a file."""
        return getattr(self, name) is not None or getattr(self, f"{name}_file") is not None

    def secret_of(self, name: str) -> str | None:
        """Return a secret, from its file if one is named."""
        path = getattr(self, f"{name}_file")
        if path is None:
            secret: str | None = getattr(self, name)
            return secret
        text = text_in(path)
        try:
            return _secret(text)
        except InputError as cause:
            reason = str(cause.details["reason"])
            raise InvalidOptionError(option=f"{name}_file", value=path, reason=reason) from None


_READER = SettingsReader(Settings, commands=COMMAND_VARIABLES)
SETTINGS = _READER.table


def read_settings(
    environment: Mapping[str, str], options: Mapping[str, object], *, file: str | None = None
) -> Effective[Settings]:
    """Return the settings in effect, or raise with every problem; an option that is None is absent."""
    return _READER.read(environment, options, file=file)


def secrets_of(settings: Settings) -> list[str]:
    """Return the secrets of the settings and their files, which must not appear in a log."""
    broker = settings.broker
    values = {name: getattr(settings, name) for name, entry in SETTINGS.items() if entry.sensitive}
    values |= {
        "store": settings.store_url,
        "celery_broker": None if broker is None else broker.url,
        "celery_backend": settings.celery.backend,
        **{name: settings.secret_of(name) for name in SECRET_NAMES},
    }
    vault = settings.vault()
    named = [] if vault is None else [*vault.values(), *vault.keys]
    return named + [
        text
        for name, value in values.items()
        if value is not None and (sensitive := SETTINGS[name].sensitive) is not None
        for text in sensitive.secrets(value)
    ]
