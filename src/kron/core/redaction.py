"""Redaction: which parts of a text are secret, and the text without them.

The only implementation. It is plain text work without I/O, and it is part of the core because every layer
hides secrets: stores and launchers in errors, logs in every line, the command line before it quotes a word.
What may be shown of launcher objects and settings is decided by `kron.app.redaction`, with these functions.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

HIDDEN = "***"
# Shorter secrets are not replaced in a text: they would match everywhere.
MIN_SECRET = 4
# How the token of a run starts (`kron.launchers.run_token`).
RUN_TOKEN_PREFIX = "kron-run."  # noqa: S105 - it is public
# Fewer of a token's last characters than these are not worth hiding where a text was cut.
MIN_TOKEN_PART = 8

# Three parts in base64 of which the first is a JSON object: a JSON Web Token.
_JWT = r"eyJ[\w-]{4,}\.[\w-]+\.[\w-]*"
_RUN_TOKEN = re.escape(RUN_TOKEN_PREFIX) + r"[\w-]{16,}"
_TOKENS = re.compile(f"{_JWT}|{_RUN_TOKEN}")
_RUN_TOKENS = re.compile(re.escape(RUN_TOKEN_PREFIX) + r"[\w-]*", re.ASCII)
_LOGINS = re.compile(r"(?<=://)([^\s/@:'\"]*):[^\s/@'\"]+(?=@)")
_SCHEMES = re.compile(r"\b(bearer|basic)\s+[\w~+/=.-]{4,}", re.IGNORECASE)
# A field of a JSON object, of a Python dictionary, a header, or a parameter of a URL.
_NAMED = re.compile(
    r"\b((?:proxy-)?authorization|cookie|set-cookie|x-api-key|[\w-]{0,40}(?:password|passwd|secret|token|api_?key))"
    r"(['\"]?\s*[:=]\s*(?:b?['\"])?)(?!\*\*\*)(?:(?:bearer|basic)\s+)?[^\s,;&'\"})\]]+",
    re.IGNORECASE,
)
# Names of options and URL parameters whose values are secret; names of files are not.
_SECRET_NAME = re.compile(r"pass(?!file)|secret|token|credential|(?<!ssl)key", re.IGNORECASE)
_PASSWORD_PARAMETER = re.compile(r"(?<=[?&])((?:ssl)?password=)[^&#]*", re.IGNORECASE)
_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")
# A password between user and host; a port, an IPv6 address or a path only looks like one.
_LOGIN_IN_WORD = re.compile(r"://[^\s/?#:@\[]*:(?!\d+(?:[/?#\s\"']|$))[^\s@][^\s]*@")
_PARAMETER_IN_WORD = re.compile(r"://\S*[?&](?:ssl)?password=[^\s&#]", re.IGNORECASE)
_TOKEN_IN_WORD = re.compile(rf"\beyJ[\w-]{{8,}}\.[\w-]+\.|\b{_RUN_TOKEN}")


def _longest_first(secrets: Iterable[str]) -> list[str]:
    return sorted({text for text in secrets if len(text) >= MIN_SECRET}, key=len, reverse=True)


class Redactor:
    """Hides secrets in a text: those that were configured, and everything that has the form of one."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = _longest_first(secrets)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def hide(self, text: str) -> str:
        """Return a text without its secrets."""
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        text = _TOKENS.sub(HIDDEN, text)
        text = _LOGINS.sub(rf"\1:{HIDDEN}", text)
        text = _NAMED.sub(rf"\1\2{HIDDEN}", text)
        return _SCHEMES.sub(rf"\1 {HIDDEN}", text)


# For texts where no secret is configured.
NO_SECRETS = Redactor()


def replace_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a text with each of these secrets hidden, and nothing else."""
    for secret in _longest_first(secrets):
        text = text.replace(secret, HIDDEN)
    return text


def contains_secret(word: str) -> bool:
    """Return whether a word of a command line contains a password or a token."""
    if _LOGIN_IN_WORD.search(word) or _TOKEN_IN_WORD.search(word):
        return True
    return _PARAMETER_IN_WORD.search(percent_decoded(word)) is not None


# --- run tokens ------------------------------------------------------------------------------------


def hide_run_tokens(text: str) -> str:
    """Return a text without the tokens of runs, and without the start of one where the text was cut."""
    return _RUN_TOKENS.sub(HIDDEN, text)


def hide_run_token(output: bytes, token: str) -> bytes:
    """Return a part of an output without one token, or a part of one where the output was cut."""
    known, hidden = token.encode(), HIDDEN.encode()
    clean = output.replace(known, hidden)
    sizes = range(len(known) - 1, MIN_TOKEN_PART - 1, -1)
    start = next((size for size in sizes if clean.startswith(known[-size:])), 0)
    clean = hidden + clean[start:] if start else clean
    end = next((size for size in sizes if clean.endswith(known[:size])), 0)
    return clean[:-end] + hidden if end else clean


# --- URLs ------------------------------------------------------------------------------------------


def redact_url(url: str) -> str:
    """Return a URL without user, password and query."""
    scheme, mark, _, place = _split_login(url)
    plain, query, _ = place.partition("?")
    return f"{scheme}{mark}{plain}{query and '?' + HIDDEN}"


def redact_passwords(url: str) -> str:
    """Return a URL with only its passwords hidden, those of the login and those among the parameters."""
    scheme, mark, rest = url.partition("://")
    # A password that is not encoded may contain any character, so the last @ ends it.
    login, at, place = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    password = f":{HIDDEN}" if colon else ""
    shown = f"{scheme}{mark}{user}{password}{at}" + _PASSWORD_PARAMETER.sub(rf"\1{HIDDEN}", place)
    return NO_SECRETS.hide(shown)


def secrets_in_url(url: str, *, every_parameter: bool = False) -> list[str]:
    """Return the passwords in a URL, and the values of its secret parameters or of all, also decoded."""
    _, _, login, place = _split_login(url)
    written = [login.partition(":")[2]]
    for pair in place.partition("#")[0].partition("?")[2].split("&"):
        name, _, value = pair.partition("=")
        if every_parameter or _SECRET_NAME.search(name):
            written += [value, value.replace("+", " ")]
    return list(filter(None, dict.fromkeys(text for raw in written for text in (raw, percent_decoded(raw)))))


def _split_login(url: str) -> tuple[str, str, str, str]:
    """Return scheme, ``://``, login, and the rest of a URL."""
    scheme, mark, rest = url.partition("://")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        login = authority.rpartition("@")[0]
    else:
        # What follows the colon is no port: it is a password with a slash that should have been encoded.
        port = authority.rpartition("]")[2].partition(":")[2]
        login = rest.rpartition("@")[0] if port and not port.isdigit() else ""
    return scheme, mark, login, rest[len(login) + 1 :] if login or rest.startswith("@") else rest


def percent_decoded(text: str) -> str:
    """Return a text with its percent escapes decoded as UTF-8."""
    data = _PERCENT.sub(lambda found: bytes([int(found[1], 16)]), text.encode(errors="replace"))
    return data.decode(errors="replace")


# --- options ---------------------------------------------------------------------------------------


def secrets_in_options(value: object, name: str = "") -> Iterator[str]:
    """Yield the texts in nested options whose name says that they are secret."""
    if isinstance(value, str) and _SECRET_NAME.search(name):
        yield value
    elif isinstance(value, Mapping):
        for inner, each in value.items():
            yield from secrets_in_options(each, str(inner))
    elif isinstance(value, list):
        for each in value:
            yield from secrets_in_options(each, name)
