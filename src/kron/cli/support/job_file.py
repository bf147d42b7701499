"""Job files: YAML, JSON or krontab with the line of every problem, and the calendar files they name."""

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

import yaml

from kron.cli.support.json_file import MAX_BITS, MAX_DIGITS, TOO_LONG, TextError, lines_of_json, parse_json
from kron.cli.support.read import MAX_CALENDAR, MAX_JOBS, STDIN, read_text
from kron.cli.support.source import KRONTAB, Source
from kron.core.errors import InputError, InvalidJobFileError, Problem, UnreadableFileError
from kron.core.job.calendar import parse_dates
from kron.core.job.file import definitions_in, is_named, jobs_from, with_identities
from kron.core.job.icalendar import InvalidCalendarError, parse_icalendar
from kron.core.job.job import Job
from kron.core.job.krontab import parse_krontab

# Limits against hostile files. A file of 100,000 jobs has some two million nodes, and a dozen levels.
MAX_DEPTH = 50
MAX_NODES = 5_000_000
# The container types of JSON and YAML.
_NESTED = (dict, list, tuple, set)

# The longest quote of a calendar's line that is not a date: the file may be another one, named by mistake.
MAX_QUOTED = 40
# The suffix of calendar files that are read as iCalendar.
ICALENDAR = ".ics"
# In the place of an invalid calendar, so that its days cause no further problem.
_SOME_DAY = ("2000-01-01",)
_DATES = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}( *\.\. *[0-9]{4}-[0-9]{2}-[0-9]{2})?")

_YAML = "tag:yaml.org,2002:"
# The start of JSON, and seldom of YAML, for texts without a suffix: brackets, then a quote or a bracket.
_JSON = re.compile(r'\s*[\[{][\s\[{]*["\]}]')


class MalformedFileError(UnreadableFileError):
    """A file is not valid JSON or YAML, from a line on."""

    def __init__(self, *, file: str, line: int, reason: str) -> None:
        InputError.__init__(self, f"{file}:{line}: {reason}", file=file, line=line, reason=reason)


class JobFile:
    """The content of a job file, and the line of every path in it."""

    def __init__(
        self,
        file: str,
        content: object,
        find_lines: Callable[[], dict[str, int]],
        *,
        columns: Mapping[str, int] | None = None,
        named: Collection[str] = (),
    ) -> None:
        """Take the parsed content; `named` are the paths of jobs whose identity has the file's name."""
        self.file = file
        self.content = content
        self.named = named
        self._find_lines = find_lines
        self._columns = columns

    @cached_property
    def lines(self) -> dict[str, int]:
        """Return the line of each path; computed for error messages only."""
        return self._find_lines()

    def line_of(self, path: str) -> int:
        """Return the line of a path such as ``jobs[2].policy.deadline``, or of the nearest enclosing one."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path, 1)

    def name_jobs(self) -> None:
        """Give each job that has a name alone its identity, made of the file's name."""
        named = (path for path, job in definitions_in(self.content) if is_named(job))
        self.named = frozenset([*self.named, *named])
        self.content = with_identities(self.content, Path(self.file).stem)

    def jobs(self, *, may_be_empty: bool = False) -> list[Job]:
        """Return the jobs, or raise InvalidJobFileError with every problem, its line and its path."""
        folder = Path() if self.file == STDIN else Path(self.file).parent
        content, problems = _with_calendar_files(self.content, folder)
        jobs: list[Job] = []
        try:
            jobs = jobs_from(content)
        except InvalidJobFileError as error:
            problems += [problem for problem in error.problems if isinstance(problem, Problem)]
        problems += _launcher_problems(self.content, jobs)
        if problems:
            raise InvalidJobFileError(
                problems=problems, file=self.file, lines=self.lines, columns=self._columns
            )
        if not jobs and not may_be_empty:
            raise UnreadableFileError(file=self.file, reason="it has no jobs")
        return jobs


def _launcher_problems(content: object, jobs: list[Job]) -> Iterator[Problem]:
    """Yield the problems of launcher objects, each with its path in the file."""
    if all(job.launcher is None for job in jobs):
        return
    from kron.app.launchers import read_launcher
    from kron.launchers.spec import InvalidLauncherError

    for (path, _), job in zip(definitions_in(content), jobs, strict=True):
        try:
            if job.launcher is not None:
                read_launcher(job.launcher)
        except InvalidLauncherError as error:
            for each in error.problems:
                yield Problem(f"{path}.{each.path}".removeprefix("."), each.value, each.reason)


def load_jobs(argument: str, *, may_be_empty: bool = False) -> list[Job]:
    """Return the jobs of a file or of standard input."""
    text = read_text(argument, MAX_JOBS)
    return parse_jobs(Source(name=argument, text=text, has_jobs=True)).jobs(may_be_empty=may_be_empty)


def parse_jobs(source: Source) -> JobFile:
    """Return the content of a text, or raise UnreadableFileError if it is neither YAML nor JSON."""
    suffix = Path(source.name).suffix.lower()
    if suffix == KRONTAB:
        return _parse_krontab(source)
    is_json = suffix == ".json" or (suffix not in (".yaml", ".yml") and _JSON.match(source.text) is not None)
    with _faults_named(source):
        parsed = _parse_json(source) if is_json else _parse_yaml(source)
    _check_values(parsed)
    parsed.name_jobs()
    return parsed


def parse_documents(source: Source) -> list[object]:
    """Return the documents of a YAML text, or raise UnreadableFileError."""
    with _faults_named(source):
        _check_depth(source.text)
        nodes = yaml.compose_all(source.text, Loader=Loader)
        if sum(_size_of(node, {}) for node in nodes if node is not None) > MAX_NODES:
            raise ValueError("its aliases expand to too many values")
        documents = list(yaml.load_all(source.text, Loader=Loader))
    _check_values(JobFile(source.name, documents, dict))
    return documents


@contextmanager
def _faults_named(source: Source) -> Iterator[None]:
    """Raise UnreadableFileError, with the line if it is known, for a text that cannot be parsed."""
    try:
        yield
    except TextError as fault:
        raise MalformedFileError(file=source.name, line=fault.line, reason=str(fault)) from None
    except yaml.YAMLError as error:
        line, reason = _yaml_fault(error, source.text)
        raise MalformedFileError(file=source.name, line=line, reason=reason) from None
    except (RecursionError, ValueError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise UnreadableFileError(file=source.name, reason=reason) from None


def _parse_json(source: Source) -> JobFile:
    return JobFile(source.name, parse_json(source.text), lambda: lines_of_json(source.text))


def _parse_krontab(source: Source) -> JobFile:
    krontab = parse_krontab(source.text, stem=Path(source.name).stem, file=source.name)
    lines = {path: place.line for path, place in krontab.places.items()}
    columns = {path: place.column for path, place in krontab.places.items()}
    return JobFile(source.name, krontab.content, lambda: lines, columns=columns, named=krontab.named)


# --- YAML ------------------------------------------------------------------------------------------

_SafeLoader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# Plain scalars that stay texts, as in JSON: dates, so that an invalid one is a problem with a path and a
# line, and times of day, which YAML 1.1 reads as base-60 numbers.
_DAY = f"{_YAML}timestamp"
_PLAIN = {
    f"{_YAML}int": re.compile(r"[-+]?(?:0b[0-1_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$"),
    f"{_YAML}float": re.compile(
        r"(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
}


class Loader(_SafeLoader):  # type: ignore[misc, valid-type]
    """The YAML dialect of job files."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        character: [(tag, _PLAIN.get(tag, pattern)) for tag, pattern in resolvers if tag != _DAY]
        for character, resolvers in _SafeLoader.yaml_implicit_resolvers.items()
    }


def _careful(kind: str) -> Callable[[yaml.SafeLoader, yaml.Node], object]:
    """Return a constructor of one type, which rejects an invalid value with its line."""
    default = _SafeLoader.yaml_constructors[f"{_YAML}{kind}"]

    def construct(loader: yaml.SafeLoader, node: yaml.Node) -> object:
        text = node.value if isinstance(node, yaml.ScalarNode) else ""
        if kind == "int" and len(text) > MAX_DIGITS and text.lstrip("+-").replace("_", "").isdecimal():
            return TOO_LONG
        try:
            return default(loader, node)
        except (ValueError, TypeError, LookupError, AttributeError) as cause:
            raise yaml.constructor.ConstructorError(None, None, f"invalid {kind}", node.start_mark) from cause

    return construct


for _kind in ("int", "float", "bool", "timestamp", "binary"):
    Loader.add_constructor(f"{_YAML}{_kind}", _careful(_kind))


def _parse_yaml(source: Source) -> JobFile:
    _check_depth(source.text)
    loader = Loader(source.text)
    try:
        node = loader.get_single_node()
        if node is None:
            return JobFile(source.name, None, dict)
        if _size_of(node, {}) > MAX_NODES:
            raise ValueError("its aliases expand to too many values")
        content: object = loader.construct_document(node)
        return JobFile(source.name, content, lambda: _lines_of_yaml(source.text))
    finally:
        loader.dispose()


def _lines_of_yaml(text: str) -> dict[str, int]:
    """Return the line of each path; parsed again, because constructing values moves merged fields."""
    return dict(_lines_of(yaml.compose(text, Loader=Loader), "", set()))


def _yaml_fault(error: yaml.YAMLError, text: str) -> tuple[int, str]:
    """Return the line and the message of an error, without the parser's name for the text."""
    if isinstance(error, yaml.reader.ReaderError):
        # Its position is in bytes or in characters, depending on the loader, so the character is searched.
        with suppress(TypeError, ValueError):
            character = chr(error.character)
            line = text.count("\n", 0, max(text.find(character), 0)) + 1
            return line, f"it is not YAML: invalid character U+{error.character:04X}"
        return 1, "it is not YAML: invalid character"
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        message = ", ".join(part for part in (error.context, error.problem) if part)
        # The end of a text counts to its last line.
        last = text.rstrip("\n").count("\n") + 1
        return min(mark.line + 1, last) if mark else 1, f"it is not YAML: {message}"
    return 1, f"it is not YAML: {error}"


def _check_depth(text: str) -> None:
    """Raise for deep nesting before any recursion."""
    depth = 0
    for event in yaml.parse(text, Loader=Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _size_of(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Return how many values a node expands to with its aliases; a node that contains itself is an error."""
    known = sizes.get(id(node))
    if known is not None:
        if known == 0:
            raise ValueError("it has an alias to a value that contains the alias")
        return known
    sizes[id(node)] = 0
    size = 1 + sum(_size_of(child, sizes) for child in _children(node))
    sizes[id(node)] = size
    return size


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        names: set[Hashable] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != f"{_YAML}merge":
                if key.value in names:
                    reason = f'duplicate field "{key.value}"'
                    raise TextError(key.start_mark.line + 1, reason)
                names.add(key.value)
            yield key
            yield value
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


def _lines_of(node: yaml.Node, path: str, seen: set[int]) -> Iterator[tuple[str, int]]:
    """Yield the line of each path; values that an alias repeats have the line of the alias."""
    yield path, node.start_mark.line + 1
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                inner = f"{path}.{key.value}" if path else key.value
                yield inner, key.start_mark.line + 1
                yield from ((place, line) for place, line in _lines_of(value, inner, seen) if place != inner)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield from _lines_of(value, f"{path}[{number}]", seen)


# --- values that can be parsed but not printed ------------------------------------------------------


def _check_values(parsed: JobFile) -> None:
    """Raise for deep nesting, also by aliases, and for integers that are too long."""
    level = [parsed.content]
    for _ in range(MAX_DEPTH + 1):
        if any(map(_is_too_long, level)):
            path = next(_long_numbers(parsed.content, ""))
            reason = f"the number is too long; use at most {MAX_DIGITS} digits"
            raise InvalidJobFileError(
                problems=[Problem(path or "file", None, reason)], file=parsed.file, lines=parsed.lines
            )
        level = [inner for value in level if isinstance(value, _NESTED) for inner in _values(value)]
        if not level:
            return
    raise UnreadableFileError(file=parsed.file, reason=f"it is nested more than {MAX_DEPTH} levels deep")


def _values(value: Iterable[object]) -> Iterable[object]:
    """Return the parts of a container; keys that are not texts are parts too."""
    if isinstance(value, dict):
        return [*value.values(), *(name for name in value if not isinstance(name, str))]
    return value


def _is_too_long(value: object) -> bool:
    return isinstance(value, int) and value.bit_length() > MAX_BITS


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """Yield the parts of a container with their relative paths."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if not isinstance(name, str):
                yield "", name
            yield f".{'...' if _is_too_long(name) else name}", inner
    elif isinstance(value, _NESTED):
        for number, inner in enumerate(value):
            yield f"[{number}]", inner


def _long_numbers(value: object, path: str) -> Iterator[str]:
    if _is_too_long(value):
        yield path.removeprefix(".")
    for rest, inner in _parts(value):
        yield from _long_numbers(inner, path + rest)


# --- calendar files --------------------------------------------------------------------------------


def _with_calendar_files(content: object, folder: Path) -> tuple[object, list[Problem]]:
    """Return the content of a job file with the days of its calendar files, and the problems of these."""
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
    """Return the days of one calendar, read from its file if it names one."""
    if not isinstance(days, Mapping) or set(days) != {"file"} or not isinstance(days["file"], str):
        return days
    file = str(folder / days["file"])
    try:
        text = read_text(file, MAX_CALENDAR)
        dates, fault = (
            _ical_days(file, text) if file.lower().endswith(ICALENDAR) else _listed_days(file, text)
        )
    except UnreadableFileError as error:
        dates, fault = [], f"cannot read {file}: {error.details['reason']}"
    if fault is not None:
        problems.append(Problem(path, None, fault))
        return list(_SOME_DAY)
    return dates


def _ical_days(file: str, text: str) -> tuple[list[str], str | None]:
    """Return the days of an iCalendar file, or its fault."""
    try:
        return [str(days) for days in parse_icalendar(text)], None
    except InvalidCalendarError as error:
        return [], f"{file}:{error.details['line']}: {error.details['reason']}"


def _listed_days(file: str, text: str) -> tuple[list[str], str | None]:
    """Return the days of a text file with one to a line, or its fault."""
    lines = [line.partition("#")[0].strip() for line in text.split("\n")]
    dates = [line for line in lines if line]
    return dates, next(_faults(file, lines), None) if dates else f"{file}: the file has no days"


def _faults(file: str, lines: list[str]) -> Iterator[str]:
    """Yield the problems of lines that are not days."""
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
