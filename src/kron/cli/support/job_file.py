"""Reading job files: YAML or JSON, safely, with the line of every problem."""

import re
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import yaml

from kron.cli.support.calendar_file import with_calendar_files
from kron.cli.support.json_file import MAX_BITS, MAX_DIGITS, TOO_LONG, TextError, lines_of_json, parse_json
from kron.cli.support.read import MAX_JOBS, STDIN, read_text
from kron.cli.support.source import Source
from kron.core.errors import InputError, InvalidJobFileError, Problem, UnreadableFileError
from kron.core.job.file import jobs_from
from kron.core.job.job import Job

# Bounds against hostile files. A fleet of 100,000 jobs has some two million nodes; nobody nests a job file
# deeper than a dozen levels.
MAX_DEPTH = 50
MAX_NODES = 5_000_000
# What a value may be made of others by, with all that YAML has tags for.
_NESTED = (dict, list, tuple, set)

_YAML = "tag:yaml.org,2002:"
# How JSON begins and YAML seldom does, for texts without a name: brackets, then a quote or the other bracket.
_JSON = re.compile(r'\s*[\[{][\s\[{]*["\]}]')


class MalformedFileError(UnreadableFileError):
    """A file is not in the format it should be in, from some line on."""

    def __init__(self, *, file: str, line: int, reason: str) -> None:
        InputError.__init__(self, f"{file}:{line}: {reason}", file=file, line=line, reason=reason)


class JobFile:
    """A file of jobs as it is written: plain data, and the line of every path in it."""

    def __init__(self, file: str, content: object, find_lines: Callable[[], dict[str, int]]) -> None:
        self.file = file
        self.content = content
        self._find_lines = find_lines

    @cached_property
    def lines(self) -> dict[str, int]:
        """Return the line of each path; it is asked for only where something is wrong."""
        return self._find_lines()

    def line_of(self, path: str) -> int:
        """Return the line of a path such as ``jobs[2].policy.deadline``, or of the nearest around it."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path, 1)

    def jobs(self, *, may_be_empty: bool = False) -> list[Job]:
        """Return the jobs, or raise an error with every problem, its line and its path."""
        folder = Path() if self.file == STDIN else Path(self.file).parent
        content, problems = with_calendar_files(self.content, folder)
        found: list[Job] = []
        try:
            found = jobs_from(content)
        except InvalidJobFileError as error:
            problems += [problem for problem in error.problems if isinstance(problem, Problem)]
        if problems:
            raise InvalidJobFileError(problems=problems, file=self.file, lines=self.lines)
        if not found and not may_be_empty:
            raise UnreadableFileError(file=self.file, reason="it has no jobs")
        return found


def load_jobs(argument: str, *, may_be_empty: bool = False) -> list[Job]:
    """Return the jobs of a file or of standard input."""
    text = read_text(argument, MAX_JOBS)
    return parse_jobs(Source(name=argument, text=text, has_jobs=True)).jobs(may_be_empty=may_be_empty)


def parse_jobs(source: Source) -> JobFile:
    """Return what a text says, or raise UnreadableFileError where it is neither YAML nor JSON."""
    suffix = Path(source.name).suffix.lower()
    is_json = suffix == ".json" or (suffix not in (".yaml", ".yml") and _JSON.match(source.text) is not None)
    try:
        parsed = _parse_json(source) if is_json else _parse_yaml(source)
    except TextError as fault:
        raise MalformedFileError(file=source.name, line=fault.line, reason=str(fault)) from None
    except yaml.YAMLError as error:
        line, reason = _yaml_fault(error, source.text)
        raise MalformedFileError(file=source.name, line=line, reason=reason) from None
    except (RecursionError, ValueError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise UnreadableFileError(file=source.name, reason=reason) from None
    _check_values(parsed)
    return parsed


def _parse_json(source: Source) -> JobFile:
    return JobFile(source.name, parse_json(source.text), lambda: lines_of_json(source.text))


# --- YAML ------------------------------------------------------------------------------------------

_SafeLoader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# Plain words that stay texts, as in JSON: days, so that one that is not in the calendar is a problem with a
# path and a line, and times of day, which YAML 1.1 takes for numbers of base 60.
_DAY = f"{_YAML}timestamp"
_PLAIN = {
    f"{_YAML}int": re.compile(r"[-+]?(?:0b[0-1_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$"),
    f"{_YAML}float": re.compile(
        r"(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
}


class Loader(_SafeLoader):  # type: ignore[misc, valid-type]
    """YAML as job files are written in it."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        sign: [(tag, _PLAIN.get(tag, pattern)) for tag, pattern in resolvers if tag != _DAY]
        for sign, resolvers in _SafeLoader.yaml_implicit_resolvers.items()
    }


def _careful(kind: str) -> Callable[[yaml.SafeLoader, yaml.Node], object]:
    """Return what makes a value of one kind, and refuses with its line what only claims to be one."""
    usual = _SafeLoader.yaml_constructors[f"{_YAML}{kind}"]

    def construct(loader: yaml.SafeLoader, node: yaml.Node) -> object:
        text = node.value if isinstance(node, yaml.ScalarNode) else ""
        if kind == "int" and len(text) > MAX_DIGITS and text.lstrip("+-").replace("_", "").isdecimal():
            return TOO_LONG
        try:
            return usual(loader, node)
        except (ValueError, TypeError, LookupError, AttributeError) as cause:
            raise yaml.constructor.ConstructorError(
                None, None, f"the value is no {kind}", node.start_mark
            ) from cause

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
            raise ValueError("its aliases expand to too much")
        content: object = loader.construct_document(node)
        return JobFile(source.name, content, lambda: _lines_of_yaml(source.text))
    finally:
        loader.dispose()


def _lines_of_yaml(text: str) -> dict[str, int]:
    """Return the line of each path; read anew, because making values puts merged fields in their places."""
    return dict(_lines_of(yaml.compose(text, Loader=Loader), "", set()))


def _yaml_fault(error: yaml.YAMLError, text: str) -> tuple[int, str]:
    """Return the line of an error and what it says, without the reader's own name for the text."""
    if isinstance(error, yaml.reader.ReaderError):
        # Its place is counted in bytes by one reader and in signs by the other: the sign is sure to be found.
        with suppress(TypeError, ValueError):
            sign = chr(error.character)
            line = text.count("\n", 0, max(text.find(sign), 0)) + 1
            return line, f"it is not YAML: the sign U+{error.character:04X} is not allowed"
        return 1, "it is not YAML: it has a sign that is not allowed"
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        said = ", ".join(part for part in (error.context, error.problem) if part)
        # The end of a text is no line of its own.
        last = text.rstrip("\n").count("\n") + 1
        return min(mark.line + 1, last) if mark else 1, f"it is not YAML: {said}"
    return 1, f"it is not YAML: {error}"


def _check_depth(text: str) -> None:
    """Refuse deep nesting before anything recurses over it."""
    depth = 0
    for event in yaml.parse(text, Loader=Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _size_of(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Return how many values a node expands to, aliases included; one that contains itself is refused."""
    known = sizes.get(id(node))
    if known is not None:
        if known == 0:
            raise ValueError("it has an alias to a value that contains it")
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
                    reason = f'the field "{key.value}" stands twice in one object'
                    raise TextError(key.start_mark.line + 1, reason)
                names.add(key.value)
            yield key
            yield value
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


def _lines_of(node: yaml.Node, path: str, seen: set[int]) -> Iterator[tuple[str, int]]:
    """Yield the line of each path; what an alias repeats has the line of the alias, however much it is."""
    yield path, node.start_mark.line + 1
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                inner = f"{path}.{key.value}" if path else key.value
                yield inner, key.start_mark.line + 1
                yield from ((found, line) for found, line in _lines_of(value, inner, seen) if found != inner)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield from _lines_of(value, f"{path}[{number}]", seen)


# --- what can be read but not shown again ----------------------------------------------------------


def _check_values(parsed: JobFile) -> None:
    """Refuse deep nesting, also by aliases, and endless numbers."""
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
    """Return what a value is made of; names that are no texts are values too."""
    if isinstance(value, dict):
        return [*value.values(), *(name for name in value if not isinstance(name, str))]
    return value


def _is_too_long(value: object) -> bool:
    return isinstance(value, int) and value.bit_length() > MAX_BITS


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """Yield what a value is made of, with the rest of its path."""
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
