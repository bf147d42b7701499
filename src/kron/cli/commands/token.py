"""`kron token`: creates keys and tokens, and inspects tokens."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kron.cli.main import GOOD, NO
from kron.cli.support.extra import importing
from kron.cli.support.option import AsJson, Config, offer, one_of
from kron.cli.support.terminal import say, show_json
from kron.clocks.system import SystemClock
from kron.core.errors import InputError, InvalidOptionError, UnreadableFileError, one_line
from kron.core.time.duration import parse_duration
from kron.fronts.service.auth.principal import MAX_USER, TokenScope, UnauthenticatedError, parse_user
from kron.fronts.service.settings import Settings, read_settings
from kron.launchers.http.launcher import signing_key_of

if TYPE_CHECKING:
    from kron.fronts.service.auth.key import KeyPair

# The functions import the cryptography they need, so that the help is there without it.
LONGEST_DAYS = 366
# The same as in `kron.fronts.service.auth.key`, which needs the cryptography.
ALGORITHMS = ("EdDSA", "ES256", "RS256")
PRIVATE, PUBLIC = "private.pem", "jwks.json"
User = Annotated[str, typer.Option("--user", metavar="NAME", help="User of the token.")]
Signed = Annotated[str, typer.Option("--user", metavar="NAME", help="User whose schedules the key signs.")]
Scopes = Annotated[
    list[str],
    typer.Option(
        "--scope",
        metavar="SCOPE",
        help="Scope: read, write, run or admin; repeatable.",
        autocompletion=offer(lambda: list(TokenScope)),
    ),
]
Groups = Annotated[
    list[str] | None, typer.Option("--group", metavar="NAME", help="Group of the user; repeatable.")
]
Ttl = Annotated[str, typer.Option("--ttl", metavar="DURATION", help="Lifetime of the token, e.g. 1h.")]
KeyFile = Annotated[
    str | None,
    typer.Option("--key", metavar="FILE", help="Private key as PEM.  [default: the secret of the settings]"),
]
TokenFile = Annotated[str, typer.Argument(metavar="FILE", help="File with the token; - is standard input.")]
Folder = Annotated[str, typer.Argument(metavar="FOLDER", help="Directory of the two files.")]
Algorithm = Annotated[
    str,
    typer.Option(
        "--algorithm",
        metavar="NAME",
        help="Signature algorithm: EdDSA, ES256 or RS256.",
        parser=one_of("--algorithm", ALGORITHMS),
        autocompletion=offer(lambda: ALGORITHMS),
    ),
]


def keys_command(folder: Folder, algorithm: Algorithm = "EdDSA", as_json: AsJson = False) -> int:
    """Create a key pair: private.pem signs tokens, jwks.json is for the service to verify them.

    \b
    Examples:
      kron token keys keys/
      KRON_JWT_KEYS=keys/jwks.json kron serve
    """  # noqa: D301
    with importing("service"):
        from kron.fronts.service.auth.key import new_pair
    pair = new_pair(algorithm)
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    _write_new(place / PRIVATE, pair.pem, mode=0o600)
    _write_new(place / PUBLIC, json.dumps(pair.jwks, indent=2) + "\n", mode=0o644)
    made = {"kid": pair.name, "private": str(place / PRIVATE), "public": str(place / PUBLIC)}
    if as_json:
        show_json(made, indent=None)
    else:
        say(f"wrote {made['private']} (keep it secret) and {made['public']} (key {pair.name})")
    return GOOD


def make_command(
    user: User,
    scope: Scopes,
    group: Groups = None,
    ttl: Ttl = "1h",
    key: KeyFile = None,
    config: Config = None,
) -> int:
    """Create a token for a user, signed with a private key or the secret of the settings.

    Audience and issuer come from the settings, secrets from files and the environment only.

    \b
    Examples:
      kron token make --user ann --scope read --scope write --key keys/private.pem
      KRON_JWT_SECRET_FILE=secret.txt kron token make --user ops --scope admin --ttl 15m
    """  # noqa: D301
    with importing("service"):
        from kron.fronts.service.auth.token import make_token
    settings = read_settings(os.environ, {}, file=config).settings
    now = int(SystemClock().now().timestamp())
    claims: dict[str, object] = {
        "sub": _name("--user", user),
        "scope": " ".join(_scopes(scope)),
        "aud": settings.jwt_audience,
        "iat": now,
        "exp": now + _seconds(ttl),
        **({} if settings.jwt_issuer is None else {"iss": settings.jwt_issuer}),
        **({"groups": [_name("--group", name) for name in group]} if group else {}),
    }
    if key is not None:
        pair = _pair_in(key)
        say(make_token(claims, pair.pem, pair.algorithm, name=pair.name))
        return GOOD
    secret = settings.secret_of("jwt_secret")
    if secret is None:
        raise InputError("No signing key: use --key, or set KRON_JWT_SECRET_FILE")
    say(make_token(claims, secret, "HS256"))
    return GOOD


def show_command(file: TokenFile = "-", config: Config = None, as_json: AsJson = False) -> int:
    """Print the claims of a token, and whether a service with these settings accepts it.

    \b
    Examples:
      kron token show < token.txt
      echo "$TOKEN" | kron token show --json
    """  # noqa: D301
    with importing("service"):
        from kron.fronts.service.auth.token import MAX_TOKEN, unverified
    settings = read_settings(os.environ, {}, file=config).settings
    text = _read(file, 4 * MAX_TOKEN).decode(errors="replace").strip()
    if not text:
        raise InvalidOptionError(option="FILE", value=file, reason="it contains no token")
    header, claims = unverified(text)
    error = asyncio.run(_error_of(text, settings))
    if as_json:
        show_json(
            {"accepted": error is None, "reason": error, "header": header, "claims": claims}, indent=None
        )
    else:
        _show(header, claims, error)
    return GOOD if error is None else NO


def signing_command(user: Signed, config: Config = None) -> int:
    """Print the key that signs the starts of a user's schedules, for their executors.

    \b
    Examples:
      kron token signing-key --user ann
      KRON_SIGNING_SECRET_FILE=secret.txt kron token signing-key --user ann
    """  # noqa: D301
    secret = read_settings(os.environ, {}, file=config).settings.secret()
    if secret is None:
        raise InputError("No signing secret: set KRON_SIGNING_SECRET_FILE")
    say(signing_key_of(secret, _name("--user", user)).decode())
    return GOOD


async def _error_of(text: str, settings: Settings) -> str | None:
    from kron.fronts.service.security import token_reader_of

    reader = token_reader_of(settings, SystemClock())
    if reader is None:
        return "no verification key is configured (jwt_keys, jwt_secret)"
    await reader.keyring.load()
    try:
        await reader.caller_of(text)
    except UnauthenticatedError as error:
        return error.reason
    return None


def _show(header: Mapping[str, object], claims: Mapping[str, object], error: str | None) -> None:
    say("accepted" if error is None else one_line(f"rejected: {error}"))
    for name, value in (*header.items(), *claims.items()):
        shown = json.dumps(value, ensure_ascii=False)
        if name in ("exp", "nbf", "iat") and isinstance(value, int) and 0 <= value < 1 << 37:
            shown = f"{shown}  {datetime.fromtimestamp(value, UTC):%Y-%m-%dT%H:%M:%SZ}"
        say(f"  {name:8} {shown}")


def _name(option: str, name: str) -> str:
    """Return a name that services accept in tokens, or raise InvalidOptionError."""
    try:
        return parse_user(name)
    except UnauthenticatedError as cause:
        reason = f"use 1 to {MAX_USER} bytes without a line break"
        raise InvalidOptionError(option=option, value=name, reason=reason) from cause


def _scopes(values: list[str]) -> list[str]:
    read = one_of("--scope", TokenScope)
    words = [read(word) for text in values for word in text.replace(",", " ").split()]
    return list(dict.fromkeys(words))


def _seconds(ttl: str) -> int:
    try:
        seconds = int(parse_duration(ttl).total_seconds())
    except InputError as cause:
        reason = "write 90s, 8h, 30d or a number of seconds"
        raise InvalidOptionError(option="--ttl", value=ttl, reason=reason) from cause
    if not 1 <= seconds <= LONGEST_DAYS * 86_400:
        raise InvalidOptionError(option="--ttl", value=ttl, reason=f"use 1s to {LONGEST_DAYS}d")
    return seconds


def _pair_in(path: str) -> "KeyPair":
    from kron.fronts.service.auth.key import read_pair

    try:
        return read_pair(Path(path).read_bytes())
    except OSError as cause:
        raise UnreadableFileError(file=path, reason=cause.strerror or str(cause)) from cause
    except InvalidOptionError as cause:
        raise InvalidOptionError(option="--key", value=path, reason=str(cause.details["reason"])) from None


def _read(path: str, most: int) -> bytes:
    try:
        if path == "-":
            return sys.stdin.buffer.read(most)
        with Path(path).open("rb") as file:
            return file.read(most)
    except OSError as cause:
        raise UnreadableFileError(file=path, reason=cause.strerror or str(cause)) from cause


def _write_new(path: Path, text: str, *, mode: int) -> None:
    """Write a new file: keys are never overwritten."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError as cause:
        raise InvalidOptionError(
            option="folder", value=str(path), reason="the file exists; use another directory"
        ) from cause
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
