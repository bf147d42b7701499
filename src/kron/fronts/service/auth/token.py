"""Tokens: JSON Web Tokens (RFC 7519) that authenticate a caller."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import jwt
from jwt.exceptions import InvalidTokenError, PyJWTError
from jwt.types import Options

from kron.core.errors import InvalidOptionError
from kron.core.time.instant import EPOCH
from kron.fronts.service.auth.key import Key
from kron.fronts.service.auth.keyring import Keyring
from kron.fronts.service.auth.principal import (
    Caller,
    TokenScope,
    UnauthenticatedError,
    parse_scopes,
    parse_user,
)
from kron.ports import Clock

# The longest token in bytes, how many keys of one id are tried, and the most groups of a caller.
MAX_TOKEN, MAX_TRIED, MAX_GROUPS = 8_192, 8, 32
ALGORITHMS = ("HS256", "RS256", "ES256", "EdDSA")
# PyJWT checks the signature only; the claims are checked below, against the service's clock.
SIGNATURE_ONLY: Options = {
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """The audience and issuer that tokens must have, and the clock skew allowed."""

    audience: str = "kron"
    issuer: str | None = None
    skew_s: int = 60


class Claims(NamedTuple):
    """The claims of a token with a valid signature."""

    values: Mapping[str, object]
    now: float
    skew: int

    def number(self, name: str) -> float | None:
        """Return a claim that is a time, or None."""
        match self.values.get(name):
            case None:
                return None
            case int(value) if not isinstance(value, bool):
                # Of any size: the signer is trusted.
                return value
            case float(value) if math.isfinite(value):
                return value
            case _:
                raise UnauthenticatedError(f'the token\'s "{name}" is not a time')


class TokenReader:
    """Verifies tokens: the signature, then the claims."""

    def __init__(self, keyring: Keyring, rules: TokenRules, clock: Clock) -> None:
        self.keyring = keyring
        self._rules = rules
        self._clock = clock

    async def caller_of(self, text: str) -> Caller:
        """Return the caller a token authenticates, or raise UnauthenticatedError."""
        return _caller_of(await self.claims_of(text))

    async def claims_of(self, text: str) -> Mapping[str, object]:
        """Return the claims of a valid token, or raise UnauthenticatedError."""
        name, algorithm = _header_of(text)
        keys = await self.keyring.find(name, algorithm)
        values = verified(text, keys[:MAX_TRIED])
        now = (self._clock.now() - EPOCH).total_seconds()
        claims = Claims(values, now, self._rules.skew_s)
        _check_times(claims)
        _check_audience(values, self._rules)
        return values


def _header_of(text: str) -> tuple[str | None, str]:
    """Return the key id and the algorithm in a token's header, which are not verified yet."""
    if len(text) > MAX_TOKEN:
        raise UnauthenticatedError(f"the token is longer than {MAX_TOKEN} bytes")
    try:
        header = jwt.get_unverified_header(text)
    except (PyJWTError, ValueError, RecursionError) as cause:
        raise UnauthenticatedError("the token is malformed") from cause
    algorithm, name = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        raise UnauthenticatedError("the token's algorithm is not allowed")
    return (name if isinstance(name, str) else None), str(algorithm)


def verified(text: str, keys: list[Key]) -> Mapping[str, object]:
    """Return the claims of a token that one of the keys signed, each tried with its algorithm only."""
    for key in keys:
        try:
            return jwt.decode(text, key.material, algorithms=[key.algorithm], options=SIGNATURE_ONLY)
        except (InvalidTokenError, ValueError, TypeError, RecursionError):
            continue
    raise UnauthenticatedError("the token's signature matches no trusted key")


def _check_times(claims: Claims) -> None:
    expires_at, not_before, issued_at = (claims.number(name) for name in ("exp", "nbf", "iat"))
    if expires_at is None:
        raise UnauthenticatedError('the token has no "exp"')
    if claims.now >= expires_at + claims.skew:
        raise UnauthenticatedError("the token has expired")
    if max(not_before or 0, issued_at or 0) > claims.now + claims.skew:
        raise UnauthenticatedError("the token is not valid yet")


def _check_audience(values: Mapping[str, object], rules: TokenRules) -> None:
    audience = values.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if rules.audience not in audiences:
        raise UnauthenticatedError("the token is for another audience")
    if rules.issuer is not None and values.get("iss") != rules.issuer:
        raise UnauthenticatedError("the token is from another issuer")


def _caller_of(values: Mapping[str, object]) -> Caller:
    groups = values.get("groups") or []
    if not isinstance(groups, list) or len(groups) > MAX_GROUPS:
        raise UnauthenticatedError(f'the token\'s "groups" is not a list of at most {MAX_GROUPS}')
    users = tuple(dict.fromkeys(parse_user(name) for name in (values.get("sub"), *groups)))
    scopes = parse_scopes(values.get("scope", values.get("scopes")))
    return Caller(users[0], scopes, None if TokenScope.ADMIN in scopes else users)


def make_token(
    claims: Mapping[str, object], key: str | bytes, algorithm: str, *, name: str | None = None
) -> str:
    """Sign a token with a secret, or with a private key as PEM."""
    headers = None if name is None else {"kid": name}
    try:
        return jwt.encode(dict(claims), key, algorithm=algorithm, headers=headers)
    except (PyJWTError, TypeError, ValueError) as cause:
        raise InvalidOptionError(option="key", value="...", reason=f"cannot sign with {algorithm}") from cause


def unverified(text: str) -> tuple[Mapping[str, object], Mapping[str, object]]:
    """Return the header and the claims of a token without verifying them, to display them."""
    _header_of(text)
    try:
        claims = jwt.decode(text, options={"verify_signature": False, **SIGNATURE_ONLY})
    except (PyJWTError, ValueError, RecursionError) as cause:
        raise UnauthenticatedError("the token is malformed") from cause
    return jwt.get_unverified_header(text), claims
