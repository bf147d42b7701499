"""Tokens: signed JSON (RFC 7519) that says who calls, until when, and what they may do."""

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
from kron.fronts.service.auth.principal import Caller, TokenScope, UnknownCallerError, rights_of, user_of
from kron.ports import Clock

# The longest token, how many keys of one name are tried, and how many groups somebody can be in.
MAX_TOKEN, MAX_TRIED, MAX_GROUPS = 8_192, 8, 32
ALGORITHMS = ("HS256", "RS256", "ES256", "EdDSA")
# What is checked here instead, against the service's own clock.
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
    """For whom tokens must be made out, by whom, and how far clocks may differ."""

    audience: str = "kron"
    issuer: str | None = None
    skew_s: int = 60


class Claims(NamedTuple):
    """What a token says, after its signature was found good."""

    values: Mapping[str, object]
    now: float
    skew: int

    def number(self, name: str) -> float | None:
        """Return a time, if there is one."""
        match self.values.get(name):
            case None:
                return None
            case int(value) if not isinstance(value, bool):
                # However long it is; whoever may sign a token may say so.
                return value
            case float(value) if math.isfinite(value):
                return value
            case _:
                raise UnknownCallerError(f'the token\'s "{name}" is not a time')


class TokenReader:
    """Reads tokens: the signature, then everything it says about its own validity."""

    def __init__(self, keyring: Keyring, rules: TokenRules, clock: Clock) -> None:
        self.keyring = keyring
        self._rules = rules
        self._clock = clock

    async def caller_of(self, text: str) -> Caller:
        """Return who a token speaks for, or raise."""
        return _caller_of(await self.claims_of(text))

    async def claims_of(self, text: str) -> Mapping[str, object]:
        """Return what a valid token says."""
        name, algorithm = _header_of(text)
        keys = await self.keyring.find(name, algorithm)
        values = verified(text, keys[:MAX_TRIED])
        now = (self._clock.now() - EPOCH).total_seconds()
        claims = Claims(values, now, self._rules.skew_s)
        _check_times(claims)
        _check_addresses(values, self._rules)
        return values


def _header_of(text: str) -> tuple[str | None, str]:
    """Return the name of the key and the algorithm that a token claims; nothing of it is believed yet."""
    if len(text) > MAX_TOKEN:
        raise UnknownCallerError(f"the token is longer than {MAX_TOKEN} bytes")
    try:
        header = jwt.get_unverified_header(text)
    except (PyJWTError, ValueError, RecursionError) as cause:
        raise UnknownCallerError("the token is malformed") from cause
    algorithm, name = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        raise UnknownCallerError("the token's algorithm is not allowed")
    return (name if isinstance(name, str) else None), str(algorithm)


def verified(text: str, keys: list[Key]) -> Mapping[str, object]:
    """Return what a token says if one of the keys signed it, each by its own algorithm only."""
    for key in keys:
        try:
            return jwt.decode(text, key.material, algorithms=[key.algorithm], options=SIGNATURE_ONLY)
        except (InvalidTokenError, ValueError, TypeError, RecursionError):
            continue
    raise UnknownCallerError("the token's signature is not of a key that counts here")


def _check_times(claims: Claims) -> None:
    ends, begins, made = claims.number("exp"), claims.number("nbf"), claims.number("iat")
    if ends is None:
        raise UnknownCallerError("the token does not say when it ends")
    if claims.now >= ends + claims.skew:
        raise UnknownCallerError("the token has expired")
    if max(begins or 0, made or 0) > claims.now + claims.skew:
        raise UnknownCallerError("the token is not valid yet")


def _check_addresses(values: Mapping[str, object], rules: TokenRules) -> None:
    audience = values.get("aud")
    named = audience if isinstance(audience, list) else [audience]
    if rules.audience not in named:
        raise UnknownCallerError("the token is made out for somebody else")
    if rules.issuer is not None and values.get("iss") != rules.issuer:
        raise UnknownCallerError("the token is made out by somebody else")


def _caller_of(values: Mapping[str, object]) -> Caller:
    groups = values.get("groups") or []
    if not isinstance(groups, list) or len(groups) > MAX_GROUPS:
        raise UnknownCallerError(f'the token\'s "groups" is not a list of at most {MAX_GROUPS}')
    users = tuple(dict.fromkeys(user_of(name) for name in (values.get("sub"), *groups)))
    rights = rights_of(values.get("scope", values.get("scopes")))
    return Caller(users[0], rights, None if TokenScope.ADMIN in rights else users)


def make_token(
    claims: Mapping[str, object], key: str | bytes, algorithm: str, *, name: str | None = None
) -> str:
    """Return a token signed with a secret, or with a private key as PEM."""
    headers = None if name is None else {"kid": name}
    try:
        return jwt.encode(dict(claims), key, algorithm=algorithm, headers=headers)
    except (PyJWTError, TypeError, ValueError) as cause:
        raise InvalidOptionError(option="key", value="...", reason=f"cannot sign with {algorithm}") from cause


def unverified(text: str) -> tuple[Mapping[str, object], Mapping[str, object]]:
    """Return what a token says of itself, for somebody to look at: header and claims, none of it proven."""
    _header_of(text)
    try:
        claims = jwt.decode(text, options={"verify_signature": False, **SIGNATURE_ONLY})
    except (PyJWTError, ValueError, RecursionError) as cause:
        raise UnknownCallerError("the token is malformed") from cause
    return jwt.get_unverified_header(text), claims
