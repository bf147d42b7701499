"""Rejects secrets on the command line, which every user of the machine can read and shells store."""

import re
from collections.abc import Sequence

from kron.core.errors import InputError
from kron.core.redaction import contains_secret

_OPTION = re.compile(r"--?[a-z][a-z-]*")
FOR_STORE = (
    "set KRON_STORE or KRON_STORE_FILE, put the URL into a settings file, or the password into PGPASSWORD or "
    "a pgpass file"
)
FOR_SERVER = "authenticate with a token in KRON_TOKEN"
FOR_OTHERS = "put it into a file, or into the environment"
FOR_HISTORY = "set KRON_HISTORY, or put the password into PGPASSWORD or a pgpass file"
REMEDIES = {"--store": FOR_STORE, "--server": FOR_SERVER, "--history": FOR_HISTORY}
STORES = ("postgresql://", "postgres://")


class SecretOnCommandLineError(InputError):
    """The command line contains a password or a token; the error does not repeat it."""

    code = "secret_on_command_line"

    def __init__(self, *, place: str, remedy: str) -> None:
        message = (
            f"{place} contains a secret, and other users of this machine can read command lines: {remedy}"
        )
        super().__init__(message, place=place, remedy=remedy)


def check_words(words: Sequence[str]) -> None:
    """Raise for a secret on the command line of any command, before an error message can quote it."""
    for before, word in zip(["", *words], words, strict=False):
        name, mark, value = word.partition("=")
        option = name if mark and _OPTION.fullmatch(name) else before
        if contains_secret(word):
            named = option if _OPTION.fullmatch(option) else ""
            is_store = value.startswith(STORES) or word.startswith(STORES)
            remedy = REMEDIES.get(named, FOR_STORE if is_store else FOR_OTHERS)
            raise SecretOnCommandLineError(place=named or "an argument", remedy=remedy)
