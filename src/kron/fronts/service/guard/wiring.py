"""The guard put together, as the settings say."""

import ssl
from typing import Literal, TypedDict

from kron.core.errors import InvalidOptionError
from kron.fronts.service.edge import MAX_HEAD
from kron.fronts.service.guard.key import secret_key
from kron.fronts.service.guard.keyring import Keyring
from kron.fronts.service.guard.peer import PatientProtocol, protocol_with
from kron.fronts.service.guard.sentry import Porter
from kron.fronts.service.guard.token import TokenReader, TokenRules
from kron.fronts.service.settings import Settings
from kron.ports import Clock

# How many connections there may be at once; one more is answered 503.
MAX_CONNECTIONS = 1_000


def has_proof(settings: Settings) -> bool:
    """Say whether callers can show who they are, so that they have to."""
    return (
        settings.jwt_keys is not None or settings.has_secret("jwt_secret") or bool(settings.client_subjects)
    )


def reader_of(settings: Settings, clock: Clock) -> TokenReader | None:
    """Return what reads tokens, if any are accepted."""
    secret = settings.secret_of("jwt_secret")
    if secret is None and settings.jwt_keys is None:
        return None
    fixed = () if secret is None else (secret_key(secret),)
    keyring = Keyring(clock, fixed=fixed, source=settings.jwt_keys)
    rules = TokenRules(audience=settings.jwt_audience, issuer=settings.jwt_issuer, skew_s=settings.jwt_skew_s)
    return TokenReader(keyring, rules, clock)


def porter_of(settings: Settings, clock: Clock) -> Porter:
    """Return what finds out who calls."""
    return Porter(
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
    """Return what a server is told; with authorities for clients, whoever shows no certificate is refused."""
    told: Serving = {
        "http": protocol_with(settings.patience_s),
        "ws": "none",
        "limit_concurrency": MAX_CONNECTIONS,
        "h11_max_incomplete_event_size": MAX_HEAD,
    }
    if settings.tls_certificate is None:
        return told
    told |= {"ssl_certfile": settings.tls_certificate, "ssl_keyfile": str(settings.tls_key)}
    if settings.tls_client_authorities is not None:
        told |= {
            "ssl_ca_certs": settings.tls_client_authorities,
            "ssl_cert_reqs": int(ssl.CERT_REQUIRED if settings.jwt_keys is None else ssl.CERT_OPTIONAL),
        }
    return told


def check_guard(settings: Settings) -> None:
    """Refuse settings that do not go together."""
    for name, needs in (("tls_key", "tls_certificate"), ("tls_client_authorities", "tls_certificate")):
        if getattr(settings, name) is not None and getattr(settings, needs) is None:
            raise InvalidOptionError(option=name, value=getattr(settings, name), reason=f"needs {needs} too")
    if settings.tls_certificate is not None and settings.tls_key is None:
        raise InvalidOptionError(
            option="tls_certificate", value=settings.tls_certificate, reason="needs tls_key too"
        )
    if settings.client_subjects and settings.tls_client_authorities is None:
        raise InvalidOptionError(
            option="client_subjects", value="...", reason="needs tls_client_authorities too"
        )
