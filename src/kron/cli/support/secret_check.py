"""Secrets on the command line: everybody on the machine can read one there, and shells remember it."""

import re
from collections.abc import Sequence
from urllib.parse import unquote

from kron.core.errors import InputError

# A password between user and host. What only looks like one is a port, an address of IPv6, or a path.
_LOGIN = re.compile(r"://[^\s/?#:@\[]*:(?!\d+(?:[/?#\s\"']|$))[^\s@][^\s]*@")
# A password as a parameter of an address.
_PARAMETER = re.compile(r"://\S*[?&](?:ssl)?password=[^\s&#]", re.IGNORECASE)
# What begins as a JSON Web Token, or as the token of a run.
_TOKEN = re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.|\bkron-run\.[\w-]{16,}")
_OPTION = re.compile(r"--?[a-z][a-z-]*")
AT_STORE = (
    "set KRON_STORE, name a file with the address in KRON_STORE_FILE, write it as store in a file of "
    "settings, or leave the password to PGPASSWORD or a pgpass file"
)
AT_SERVER = "set KRON_TOKEN, which says who asks"
ELSEWHERE = "write it in a file and name that, or use the environment"
REMEDIES = {"--store": AT_STORE, "--server": AT_SERVER}
STORES = ("postgresql://", "postgres://")


class SecretOnCommandLineError(InputError):
    """A password or a token stands on the command line; it is not repeated."""

    code = "secret_on_command_line"

    def __init__(self, *, place: str, remedy: str) -> None:
        message = f"{place} holds a secret, and everybody on this machine can read a command line: {remedy}"
        super().__init__(message, place=place, remedy=remedy)


def check_words(words: Sequence[str]) -> None:
    """Refuse a command line with a secret, whatever command it is for, before anybody quotes it."""
    for before, word in zip(["", *words], words, strict=False):
        name, mark, value = word.partition("=")
        option = name if mark and _OPTION.fullmatch(name) else before
        if _is_secret(word):
            named = option if _OPTION.fullmatch(option) else ""
            usual = AT_STORE if value.startswith(STORES) or word.startswith(STORES) else ELSEWHERE
            raise SecretOnCommandLineError(place=named or "an argument", remedy=REMEDIES.get(named, usual))


def _is_secret(word: str) -> bool:
    return any(found.search(word) for found in (_LOGIN, _TOKEN)) or bool(_PARAMETER.search(unquote(word)))
