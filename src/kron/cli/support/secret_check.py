"""Secrets on the command line: everybody on the machine can read one there, and shells remember it."""

import re
from collections.abc import Sequence

from kron.core.errors import InputError
from kron.core.redaction import contains_secret

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
        if contains_secret(word):
            named = option if _OPTION.fullmatch(option) else ""
            usual = AT_STORE if value.startswith(STORES) or word.startswith(STORES) else ELSEWHERE
            raise SecretOnCommandLineError(place=named or "an argument", remedy=REMEDIES.get(named, usual))
