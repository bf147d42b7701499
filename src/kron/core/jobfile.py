"""Job files: the content of a file in, its jobs out, every problem of every job said at once."""

from collections.abc import Iterable, Mapping

from kron.core.definition import Calendars, Problem, parse_calendars
from kron.core.errors import InputError, InvalidJobError, InvalidJobFileError
from kron.core.job import Job


def jobs_from(content: object) -> list[Job]:
    """Return the jobs of a file: one job, a list of jobs, or `jobs` beside the `calendars` they share."""
    problems: list[Problem] = []
    calendars: Calendars = {}
    definitions: object = content
    prefix = ""
    if isinstance(content, Mapping) and "identity" not in content and "jobs" in content:
        definitions, prefix = content["jobs"], "jobs"
        calendars = _calendars_of(content, problems)
        problems += [_unknown(name, content[name]) for name in content if name not in ("jobs", "calendars")]
    if isinstance(definitions, Mapping) and not prefix:
        jobs = list(_read([("", definitions)], calendars, problems))
    elif isinstance(definitions, list):
        jobs = list(_read(_numbered(prefix, definitions), calendars, problems))
    else:
        jobs = []
        problems.append(Problem(prefix or "file", definitions, "must be a job, or a list of jobs"))
    problems += _repeated(prefix, jobs)
    if problems:
        raise InvalidJobFileError(problems=problems)
    return jobs


def _numbered(prefix: str, definitions: list[object]) -> Iterable[tuple[str, object]]:
    return ((f"{prefix}[{number}]", definition) for number, definition in enumerate(definitions))


def _read(
    definitions: Iterable[tuple[str, object]], calendars: Calendars, problems: list[Problem]
) -> Iterable[Job]:
    for path, definition in definitions:
        try:
            yield Job.from_dict(definition, calendars=calendars)
        except InvalidJobError as error:
            problems += [_placed(path, problem) for problem in error.problems if isinstance(problem, Problem)]


def _placed(path: str, problem: Problem) -> Problem:
    return Problem(f"{path}.{problem.path}" if path else problem.path, problem.value, problem.reason)


def _calendars_of(content: Mapping[object, object], problems: list[Problem]) -> Calendars:
    value = content.get("calendars")
    if value is None:
        return {}
    try:
        return parse_calendars(value)
    except InputError as error:
        problems.append(Problem("calendars", value, str(error.details.get("reason", error))))
        return {}


def _unknown(name: object, value: object) -> Problem:
    return Problem(str(name), value, "unknown field; use jobs, calendars")


def _repeated(prefix: str, jobs: list[Job]) -> list[Problem]:
    seen: dict[str, int] = {}
    problems = []
    for number, job in enumerate(jobs):
        first = seen.setdefault(job.identity, number)
        if first != number:
            path = f"{prefix}[{number}].identity"
            problems.append(Problem(path, job.identity, "another job of this file has it already"))
    return problems
