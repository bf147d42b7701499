"""Files that decide what root runs: those that another user could change are refused."""

import os
import stat


def read_variables(path: str) -> dict[str, str]:
    """Return the variables of a file of `NAME=value` lines; blank lines and comments are skipped.

    A value may stand in quotes. As root, a file that others could write is refused.
    """
    if fault := untrusted(path):
        raise ValueError(f"env_file {path}: {fault}")
    variables: dict[str, str] = {}
    with open(path) as file:
        lines = file.read().splitlines()
    for number, line in enumerate(lines, 1):
        text = line.strip().removeprefix("export ")
        if not text or text.startswith("#"):
            continue
        name, mark, value = text.partition("=")
        if not mark or not name.strip().replace("_", "a").isalnum():
            raise ValueError(f"env_file {path}:{number}: must be NAME=value")
        value = value.strip()
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
        variables[name.strip()] = value[1:-1] if quoted else value
    return variables


def untrusted(path: str, owner: int = 0) -> str | None:
    """Return why root must not follow a file, or None: another user could change it, or a folder above it.

    The file may belong to an `owner`, if it is followed as that user alone.
    """
    if os.geteuid() != 0:
        return None
    place = os.path.realpath(path)
    found = os.stat(place)
    if found.st_uid not in (0, owner):
        return "belongs to another user than root"
    if found.st_mode & 0o022:
        return "can be written by others: chmod go-w"
    return None if owner else _untrusted_folder(os.path.dirname(place))


def _untrusted_folder(folder: str) -> str | None:
    """Return why another user could replace a folder, or one above it; in a sticky one none can."""
    while True:  # each folder is shorter
        found = os.stat(folder)
        if found.st_uid != 0:
            return f"is below {folder}, which belongs to another user than root"
        if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
            return f"is below {folder}, which can be written by others: chmod go-w"
        if folder == os.path.dirname(folder):
            return None
        folder = os.path.dirname(folder)
