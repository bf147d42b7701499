"""The guard put together, as the settings say."""

import ssl
from pathlib import Path
from typing import Literal, TypedDict

from kron.core.errors import InvalidOptionError
from kron.fronts.service.api.middleware import MAX_HEAD
from kron.fronts.service.auth.key import secret_key
from kron.fronts.service.auth.keyring import Keyring
from kron.fronts.service.auth.middleware import Authenticator
from kron.fronts.service.auth.proof import has_proof, has_tokens
from kron.fronts.service.auth.tls import PatientProtocol, protocol_with
from kron.fronts.service.auth.token import TokenReader, TokenRules
from kron.fronts.service.settings import Settings
from kron.ports import Clock

# How many connections there may be at once; one more is answered 503.
MAX_CONNECTIONS = 1_000
# Which setting is of no use, or dangerous, without which other: with authorities alone, whoever has any
# certificate of theirs could do everything.
NEEDED = (
    ("tls_key", "tls_certificate"),
    ("tls_certificate", "tls_key"),
    ("tls_client_authorities", "tls_certificate"),
    ("tls_client_authorities", "client_subjects"),
    ("client_subjects", "tls_client_authorities"),
)
DEFAULTS = Settings()


def reader_of(settings: Settings, clock: Clock) -> TokenReader | None:
    """Return what reads tokens, if any are accepted."""
    secret = settings.secret_of("jwt_secret")
    if secret is None and settings.jwt_keys is None:
        return None
    fixed = () if secret is None else (secret_key(secret),)
    keyring = Keyring(clock, fixed=fixed, source=settings.jwt_keys)
    rules = TokenRules(audience=settings.jwt_audience, issuer=settings.jwt_issuer, skew_s=settings.jwt_skew_s)
    return TokenReader(keyring, rules, clock)


def porter_of(settings: Settings, clock: Clock) -> Authenticator:
    """Return what finds out who calls."""
    return Authenticator(
        reader_of(settings, clock),
        subjects=settings.client_subjects.get,
        run_secret=settings.secret(),
        is_open=not has_proof(settings),
    )


class Serving(TypedDict, total=False):
    """What a server is told about connections and certificates."""

    http: type[PatientProtocol]
    ws: Literal["none"]
    limit_concurrency: int
    h11_max_incomplete_event_size: int

    ssl_certfile: str
    ssl_keyfile: str
    ssl_ca_certs: str
    ssl_cert_reqs: int


def serving_of(settings: Settings) -> Serving:
    """Return what a server is told.

    With authorities for clients, whoever shows no certificate is refused, unless a token would do.
    """
    told: Serving = {
        "http": protocol_with(settings.patience_s),
        "ws": "none",
        "limit_concurrency": MAX_CONNECTIONS,
        # What is larger gets no more than a short answer; what is a little too large is told so by the edge.
        "h11_max_incomplete_event_size": 2 * MAX_HEAD,
    }
    if settings.tls_certificate is None:
        return told
    told |= {"ssl_certfile": settings.tls_certificate, "ssl_keyfile": str(settings.tls_key)}
    if settings.tls_client_authorities is not None:
        told |= {
            "ssl_ca_certs": settings.tls_client_authorities,
            "ssl_cert_reqs": int(ssl.CERT_OPTIONAL if has_tokens(settings) else ssl.CERT_REQUIRED),
        }
    return told


def check_guard(settings: Settings) -> None:
    """Refuse settings that do not go together, and files that cannot be used."""
    for name, needs in NEEDED:
        if getattr(settings, name) and not getattr(settings, needs):
            value = "..." if name == "client_subjects" else getattr(settings, name)
            raise InvalidOptionError(option=name, value=value, reason=f"needs {needs} too")
    if not has_tokens(settings):
        for name in ("jwt_issuer", "jwt_audience"):
            if getattr(settings, name) != getattr(DEFAULTS, name):
                reason = "needs jwt_keys or jwt_secret_file too: without them nobody is asked for a token"
                raise InvalidOptionError(option=name, value=getattr(settings, name), reason=reason)
    if settings.tls_certificate is not None:
        _check_files(settings)


def _check_files(settings: Settings) -> None:
    """Load what belongs to TLS, as the server will; its own words would name no file."""
    for name in ("tls_certificate", "tls_key", "tls_client_authorities"):
        path = getattr(settings, name)
        try:
            if path is not None:
                Path(path).read_bytes()
        except OSError as cause:
            raise InvalidOptionError(option=name, value=path, reason=cause.strerror or str(cause)) from cause
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without a password of our own, OpenSSL would ask for one at the terminal.
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
