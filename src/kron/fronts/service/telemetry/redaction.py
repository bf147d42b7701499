"""Secrets: what must not stand in a log, whoever wrote it there."""

import re
from collections.abc import Iterable

HIDDEN = "***"
# Shorter ones would be found everywhere.
LEAST = 4
# Three parts in base64 of which the first is a JSON object: a JSON Web Token.
_JWT = r"eyJ[\w-]{4,}\.[\w-]+\.[\w-]*"
_OF_RUN = r"kron-run\.[\w-]{16,}"
_IN_URL = r"(?<=://)([^\s/@:'\"]*):[^\s/@'\"]+(?=@)"
_BEARER = r"\b(bearer|basic)\s+[\w~+/=.-]{4,}"
# A field of a JSON object, of a Python dictionary, a header, or a parameter of an address.
_FIELD = (
    r"\b((?:proxy-)?authorization|cookie|set-cookie|x-api-key|[\w-]{0,40}(?:password|passwd|secret|token|api_?key))"
    r"(['\"]?\s*[:=]\s*(?:b?['\"])?)(?!\*\*\*)(?:(?:bearer|basic)\s+)?[^\s,;&'\"})\]]+"
)
_KNOWN = re.compile(f"{_JWT}|{_OF_RUN}")
_NAMED = re.compile(_FIELD, re.IGNORECASE)
_SCHEMES = re.compile(_BEARER, re.IGNORECASE)
_URLS = re.compile(_IN_URL)


class Redactor:
    """Hides secrets in a text: those that were configured, and whatever looks like one."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        longest_first = sorted({text for text in secrets if len(text) >= LEAST}, key=len, reverse=True)
        self._mine = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def hide(self, text: str) -> str:
        """Return a text without its secrets."""
        if self._mine is not None:
            text = self._mine.sub(HIDDEN, text)
        text = _KNOWN.sub(HIDDEN, text)
        text = _URLS.sub(rf"\1:{HIDDEN}", text)
        text = _NAMED.sub(rf"\1\2{HIDDEN}", text)
        return _SCHEMES.sub(rf"\1 {HIDDEN}", text)


NO_SECRETS = Redactor()
