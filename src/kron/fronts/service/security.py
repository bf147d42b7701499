"""Security of a server as configured: authentication, TLS and connection limits."""

import ssl
from pathlib import Path
from typing import Literal, TypedDict

from kron.core.errors import InvalidOptionError
from kron.fronts.service.auth.key import secret_key
from kron.fronts.service.auth.keyring import Keyring
from kron.fronts.service.auth.middleware import Authenticator, is_loopback
from kron.fronts.service.auth.tls import MAX_HEAD, TimeoutProtocol, protocol_with
from kron.fronts.service.auth.token import TokenReader, TokenRules
from kron.fronts.service.settings import Settings
from kron.launchers.http.egress import is_public_host
from kron.launchers.kubernetes.access import UNVERIFIED, skips_verification
from kron.ports import Clock

# Settings that need another one. With client authorities alone, every certificate they signed would be admin.
REQUIRED = (
    ("tls_key", "tls_certificate"),
    ("tls_certificate", "tls_key"),
    ("tls_client_authorities", "tls_certificate"),
    ("tls_client_authorities", "client_subjects"),
    ("client_subjects", "tls_client_authorities"),
)
DEFAULTS = Settings()
# A larger body may take fifty times its length in memory, and a caller has two at once.
LARGEST_BODY = 16 << 20
# Programs that run whatever their arguments, their input or the files of their folder say.
INTERPRETERS = frozenset(
    {
        "ansible", "ant", "apt", "apt-get", "ash", "at", "awk", "bash", "batch", "bc", "bun", "bundle",
        "busybox", "capsh", "cargo", "cc", "chroot", "chrt", "cmake", "composer", "conda", "crontab", "csh",
        "dash", "dc", "deno", "dnf", "doas", "docker", "dotnet", "dpkg", "ed", "elixir", "emacs", "env",
        "erl", "escript", "ex", "expect", "fakeroot", "faketime", "find", "fish", "flock", "ftp", "gawk",
        "gcc", "gdb", "gem", "git", "go", "gradle", "groovy", "guile", "helm", "ionice", "irb", "java",
        "jshell", "julia", "ksh", "kubectl", "ld-linux-aarch64.so", "ld-linux-x86-64.so",
        "ld-musl-x86_64.so", "ld.so", "less", "logrotate", "ltrace", "lua", "m4", "make", "man", "mariadb",
        "mawk", "mono", "mvn", "mysql", "nawk", "nc", "ncat", "nerdctl", "netcat", "nice", "ninja", "nmap",
        "node", "nohup", "npm", "npx", "nsenter", "ocaml", "octave", "parallel", "perl", "php", "pip",
        "pipx", "pkexec", "podman", "poetry", "prlimit", "psql", "pwsh", "pytest", "python", "r", "rake",
        "rlwrap", "rpm", "rscript", "rsync", "ruby", "run-parts", "runcon", "runuser", "rvim", "scala",
        "scp", "screen", "script", "sed", "setpriv", "setsid", "sftp", "sh", "socat", "sqlite", "ssh",
        "start-stop-daemon", "stdbuf", "strace", "su", "sudo", "systemctl", "systemd-run", "tar", "taskset",
        "tclsh", "tcpdump", "tcsh", "telnet", "terraform", "time", "timeout", "tmux", "tox", "unbuffer",
        "unshare", "uv", "uvx", "vi", "view", "vim", "watch", "xargs", "yarn", "yum", "zip", "zsh",
    }
)  # fmt: skip


def accepts_tokens(settings: Settings) -> bool:
    """Return whether keys are configured that verify tokens."""
    return settings.jwt_keys is not None or settings.has_secret("jwt_secret")


def requires_authentication(settings: Settings) -> bool:
    """Return whether authentication is configured, by token or certificate, and therefore required."""
    return settings.has_users


def token_reader_of(settings: Settings, clock: Clock) -> TokenReader | None:
    """Return the verifier of tokens, or None if tokens are not accepted."""
    secret = settings.secret_of("jwt_secret")
    if secret is None and settings.jwt_keys is None:
        return None
    fixed = () if secret is None else (secret_key(secret),)
    keyring = Keyring(clock, fixed=fixed, source=settings.jwt_keys)
    rules = TokenRules(audience=settings.jwt_audience, issuer=settings.jwt_issuer, skew_s=settings.jwt_skew_s)
    return TokenReader(keyring, rules, clock)


def authenticator_of(settings: Settings, clock: Clock) -> Authenticator:
    """Return the authenticator of callers."""
    return Authenticator(
        token_reader_of(settings, clock),
        subjects=settings.client_subjects.get,
        run_secret=settings.secret(),
        is_open=not requires_authentication(settings),
    )


def weaknesses(settings: Settings) -> list[str]:
    """Return a sentence for each setting that weakens the security of a service or worker."""
    is_public = not is_loopback(settings.host)
    shells = sorted(path for path in settings.allowed_commands if _runs_anything(path))
    private = sorted(word for word in settings.allowed_hosts or () if not is_public_host(word))
    inherited = ", ".join(sorted(settings.inherited_variables))
    packages = ", ".join(sorted(settings.allowed_launchers))
    possible = (
        (
            settings.insecure and is_public and not requires_authentication(settings),
            "insecure: listening on a public address without authentication: every caller is admin",
        ),
        (
            is_public and requires_authentication(settings) and settings.tls_certificate is None,
            "tls_certificate is not set: tokens cross the network readable, unless a proxy encrypts it",
        ),
        (
            shells,
            f"allowed_commands has {', '.join(shells)}: every caller who may write can run any command",
        ),
        (
            packages,
            f"allowed_launchers has {packages}: their code runs here, their fields are stored as written",
        ),
        (inherited, f"inherited_variables: every process of a schedule can read {inherited}"),
        (
            private,
            f"allowed_hosts has {', '.join(private)}: schedules reach hosts that are not public",
        ),
        (
            settings.kubernetes is not None and skips_verification(settings.kubernetes),
            f"kubernetes: {UNVERIFIED}",
        ),
        (
            settings.max_body > LARGEST_BODY,
            f"max_body is {settings.max_body}: the requests of one caller can fill the memory",
        ),
        (not settings.requests_per_s, "requests_per_s is 0: no caller is limited"),
        (not settings.max_schedules, "max_schedules is 0: no user is limited"),
        (
            not settings.max_workflow_versions,
            "max_workflow_versions is 0: the workflows of a user are not limited",
        ),
        (not settings.max_open_runs, "max_open_runs is 0: the open runs of a user are not limited"),
        (
            settings.metrics_port is not None and not is_loopback(settings.metrics_host),
            "metrics_host is a public address: metrics and health need no authentication there",
        ),
    )
    return [sentence for applies, sentence in possible if applies]


def _runs_anything(command: str) -> bool:
    """Return whether an allowed command is, or links to, a shell, an interpreter, or a starter of others."""
    names = [Path(command).name, Path(command).resolve().name]
    # A link to one of these runs what the link is called.
    named = names[:1] if names[1] in ("busybox", "toybox", "coreutils") else names
    plain = {name.rstrip("0123456789.-").lower() for name in named}
    return " " not in command and not plain.isdisjoint(INTERPRETERS)


class ServerOptions(TypedDict, total=False):
    """Options of uvicorn for connections and TLS."""

    http: type[TimeoutProtocol]
    ws: Literal["none"]
    proxy_headers: bool
    h11_max_incomplete_event_size: int

    ssl_certfile: str
    ssl_keyfile: str
    ssl_ca_certs: str
    ssl_cert_reqs: int


def server_options(settings: Settings) -> ServerOptions:
    """Return the options of the server.

    With client authorities, a client needs a certificate, unless tokens are accepted too.
    """
    options: ServerOptions = {
        "http": protocol_with(settings.patience_s),
        "ws": "none",
        # Between MAX_HEAD and this, the API answers with a problem document; above, uvicorn with a line.
        "h11_max_incomplete_event_size": 2 * MAX_HEAD,
    }
    if settings.tls_certificate is None:
        return options
    options |= {"ssl_certfile": settings.tls_certificate, "ssl_keyfile": str(settings.tls_key)}
    if settings.tls_client_authorities is not None:
        options |= {
            "ssl_ca_certs": settings.tls_client_authorities,
            "ssl_cert_reqs": int(ssl.CERT_OPTIONAL if accepts_tokens(settings) else ssl.CERT_REQUIRED),
        }
    return options


def check_security(settings: Settings) -> None:
    """Raise for settings that contradict each other, and for unusable certificate files."""
    for name, needs in REQUIRED:
        if getattr(settings, name) and not getattr(settings, needs):
            value = "..." if name == "client_subjects" else getattr(settings, name)
            raise InvalidOptionError(option=name, value=value, reason=f"needs {needs} too")
    if not accepts_tokens(settings):
        for name in ("jwt_issuer", "jwt_audience"):
            if getattr(settings, name) != getattr(DEFAULTS, name):
                reason = "needs jwt_keys or jwt_secret_file too: without them no token is checked"
                raise InvalidOptionError(option=name, value=getattr(settings, name), reason=reason)
    if settings.tls_certificate is not None:
        _check_files(settings)


def _check_files(settings: Settings) -> None:
    """Load the TLS files as the server will: OpenSSL's errors do not name the file."""
    for name in ("tls_certificate", "tls_key", "tls_client_authorities"):
        path = getattr(settings, name)
        try:
            if path is not None:
                Path(path).read_bytes()
        except OSError as cause:
            raise InvalidOptionError(option=name, value=path, reason=cause.strerror or str(cause)) from cause
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without an explicit password, OpenSSL would prompt for one on the terminal.
        context.load_cert_chain(str(settings.tls_certificate), settings.tls_key, password="")
    except (ssl.SSLError, ValueError) as cause:
        reason = "it and tls_key must be a certificate and its private key, as PEM, without a password"
        raise InvalidOptionError(
            option="tls_certificate", value=settings.tls_certificate, reason=reason
        ) from cause
    if settings.tls_client_authorities is not None:
        _check_authorities(context, settings.tls_client_authorities)


def _check_authorities(context: ssl.SSLContext, path: str) -> None:
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as cause:
        reason = "must be certificates as PEM"
        raise InvalidOptionError(option="tls_client_authorities", value=path, reason=reason) from cause
