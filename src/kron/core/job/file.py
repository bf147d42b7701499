"""Job files: the jobs of a parsed file, with every problem of every job reported at once."""

from collections.abc import Iterable, Iterator, Mapping

from kron.core.errors import InvalidJobError, InvalidJobFileError, Problem
from kron.core.job.calendar import Calendars, read_calendars
from kron.core.job.job import Job

# The words for the stable name of a job.
IDENTITIES = frozenset({"identity", "schedule_id"})


def is_named(definition: Mapping[str, object]) -> bool:
    """Return whether a job takes its identity from its name and that of its file."""
    return "name" in definition and IDENTITIES.isdisjoint(definition)


def with_identities(content: object, stem: str) -> object:
    """Return a file's content with an identity for each job that has a name alone: `<file stem>/<name>`."""
    if isinstance(content, list):
        return [with_identities(each, stem) for each in content]
    if not isinstance(content, Mapping):
        return content
    if isinstance(content.get("jobs"), list):
        return {**content, "jobs": with_identities(content["jobs"], stem)}
    if "name" not in content:
        return content
    named = {word: value for word, value in content.items() if word != "name"}
    if not is_named(content):
        return named
    # Without a name there is no identity, which is a problem of the job.
    return {"identity": f"{stem}/{content['name']}" if content["name"] else "", **named}


def jobs_from(content: object) -> list[Job]:
    """Return the jobs of a file: one job, a list of jobs, or `jobs` beside the `calendars` they share."""
    problems: list[Problem] = []
    calendars: Calendars = {}
    definitions: object = content
    jobs: list[tuple[str, Job]] = []
    prefix = ""
    if isinstance(content, Mapping) and "identity" not in content and "jobs" in content:
        definitions, prefix = content["jobs"], "jobs"
        if content.get("calendars") is not None:
            calendars = read_calendars(content["calendars"], problems)
        problems += [_unknown(name, content[name]) for name in content if name not in ("jobs", "calendars")]
    if isinstance(definitions, Mapping) and not prefix:
        jobs = list(_read([("", definitions)], calendars, problems))
    elif isinstance(definitions, list):
        jobs = list(_read(_numbered(prefix, definitions), calendars, problems))
    else:
        problems.append(Problem(prefix or "file", definitions, "must be a job, or a list of jobs"))
    problems += _repeated(jobs)
    if problems:
        raise InvalidJobFileError(problems=problems)
    return [job for _, job in jobs]


def definitions_in(content: object) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the jobs of a file as they are written, each with its path."""
    prefix = ""
    if isinstance(content, Mapping) and "identity" not in content and "jobs" in content:
        content, prefix = content["jobs"], "jobs"
    if isinstance(content, Mapping) and not prefix:
        yield "", content
    elif isinstance(content, list):
        for number, job in enumerate(content):
            if isinstance(job, Mapping):
                yield f"{prefix}[{number}]", job


def _numbered(prefix: str, definitions: list[object]) -> Iterable[tuple[str, object]]:
    return ((f"{prefix}[{number}]", definition) for number, definition in enumerate(definitions))


def _read(
    definitions: Iterable[tuple[str, object]], calendars: Calendars, problems: list[Problem]
) -> Iterable[tuple[str, Job]]:
    for path, definition in definitions:
        if not isinstance(definition, Mapping):
            problems.append(Problem(path, definition, "must be an object: a job"))
            continue
        try:
            yield path, Job.from_dict(definition, calendars=calendars)
        except InvalidJobError as error:
            problems += [_placed(path, problem) for problem in error.problems]


def _placed(path: str, problem: Problem) -> Problem:
    return Problem(f"{path}.{problem.path}" if path else problem.path, problem.value, problem.reason)


def _unknown(name: object, value: object) -> Problem:
    return Problem(str(name), value, "unknown field; use jobs, calendars")


def _repeated(jobs: list[tuple[str, Job]]) -> list[Problem]:
    seen: dict[str, str] = {}
    problems = []
    for path, job in jobs:
        first = seen.setdefault(job.identity, path)
        if first != path:
            problems.append(Problem(f"{path}.identity", job.identity, f"{first} has it already"))
    return problems
