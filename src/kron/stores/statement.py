"""Statements live in files, one file per database; here they are read, by name."""

import re
from functools import cache
from importlib.resources import files

_NAMED = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)


@cache
def statements(database: str, file: str = "statements") -> dict[str, str]:
    """Return the statements of one database by name."""
    text = (files("kron.stores") / "sql" / database / f"{file}.sql").read_text(encoding="utf-8")
    return {name: body.strip() for name, body in _NAMED.findall(text)}


def migrations(database: str) -> list[tuple[int, str, str]]:
    """Return the numbered migrations of one database in order: number, name, text."""
    folder = files("kron.stores") / "sql" / database
    found = []
    for file in folder.iterdir():
        number, _, name = file.name.removesuffix(".sql").partition("_")
        if number.isdigit():
            found.append((int(number), name, file.read_text(encoding="utf-8")))
    return sorted(found)
