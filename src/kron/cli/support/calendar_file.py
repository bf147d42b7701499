"""Calendars that are kept in text files of their own: a day or a span of days to a line."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from kron.cli.support.read import MAX_CALENDAR, read_text
from kron.core.errors import InputError, Problem, UnreadableFileError
from kron.core.job.calendar import parse_dates

# What is quoted of a line that is no day: a file may be named by mistake that is nobody's business.
MAX_QUOTED = 40
# What stands for the days of a file that is wrong, so that nothing else is said about them.
_SOME_DAY = ("2000-01-01",)
_DATES = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}( *\.\. *[0-9]{4}-[0-9]{2}-[0-9]{2})?")


def with_calendar_files(content: object, folder: Path) -> tuple[object, list[Problem]]:
    """Return the content of a job file with the days of its calendar files, and what is wrong with them."""
    problems: list[Problem] = []
    return _filled(content, "", folder, problems), problems


def _filled(content: object, path: str, folder: Path, problems: list[Problem]) -> object:
    if isinstance(content, list):
        return [_filled(item, f"{path}[{number}]", folder, problems) for number, item in enumerate(content)]
    if not isinstance(content, Mapping):
        return content
    changed = dict(content)
    if isinstance(content.get("jobs"), list):
        changed["jobs"] = _filled(content["jobs"], f"{path}.jobs".removeprefix("."), folder, problems)
    calendars = content.get("calendars")
    if isinstance(calendars, Mapping):
        own = f"{path}.calendars".removeprefix(".")
        changed["calendars"] = {
            name: _days_of(days, f"{own}.{name}", folder, problems) for name, days in calendars.items()
        }
    return changed


def _days_of(days: object, path: str, folder: Path, problems: list[Problem]) -> object:
    """Return the days of one calendar; those of a file are read."""
    if not isinstance(days, Mapping) or set(days) != {"file"} or not isinstance(days["file"], str):
        return days
    file = str(folder / days["file"])
    try:
        lines = [line.partition("#")[0].strip() for line in read_text(file, MAX_CALENDAR).split("\n")]
    except UnreadableFileError as error:
        problems.append(Problem(path, None, f"cannot read {file}: {error.details['reason']}"))
        return list(_SOME_DAY)
    found = [line for line in lines if line]
    fault = next(_faults(file, lines), None)
    if not found:
        fault = f"{file}: the file has no days in it"
    if fault is not None:
        problems.append(Problem(path, None, fault))
        return list(_SOME_DAY)
    return found


def _faults(file: str, lines: list[str]) -> Iterator[str]:
    """Yield why a line is not a day; one is enough, because a wrong file has nothing else."""
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            parse_dates(line)
        except InputError as error:
            if _DATES.fullmatch(line):
                yield f"{file}:{number}: {error.details['reason']}"
            else:
                word = line.split()[0]
                cut = word if len(word) <= MAX_QUOTED else f"{word[:MAX_QUOTED]}..."
                yield f'{file}:{number}: "{cut}" is not a date; write 2026-12-24 or 2026-12-24..2027-01-01'
