"""Reading job files: YAML or JSON from disk, safely, with the line of every problem."""

import json
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import TypeGuard

import yaml

from kron.core.definition import Problem
from kron.core.errors import InvalidJobFileError, UnreadableFileError
from kron.core.job import Job
from kron.core.jobfile import jobs_from

SUFFIXES = (".yaml", ".yml", ".json")
# Bounds against hostile files. A fleet of 100,000 jobs has some two million nodes; nobody nests a job file
# deeper than a dozen levels.
MAX_BYTES = 256 * 1024 * 1024
MAX_DEPTH = 50
MAX_NODES = 5_000_000
MAX_BITS = 4096

_SafeLoader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Days stay texts, as in JSON: so one that is not in the calendar is a problem with a path and a line.
Loader: type[yaml.SafeLoader] = type(
    "Loader",
    (_SafeLoader,),
    {
        "yaml_implicit_resolvers": {
            sign: [pair for pair in resolvers if pair[0] != "tag:yaml.org,2002:timestamp"]
            for sign, resolvers in _SafeLoader.yaml_implicit_resolvers.items()
        }
    },
)


def is_job_file(argument: str) -> bool:
    """Say whether an argument names a file that holds jobs."""
    path = Path(argument)
    return path.suffix.lower() in SUFFIXES and path.is_file()


def load_jobs(argument: str) -> list[Job]:
    """Return the jobs of a file, or raise an error with every problem, its line and its path."""
    path = Path(argument)
    text = read_text(path)
    content, lines = _parse(text, path)
    try:
        return jobs_from(_with_calendar_files(content, path.parent))
    except InvalidJobFileError as error:
        raise InvalidJobFileError(problems=error.problems, file=str(path), lines=lines) from None


def read_text(path: Path) -> str:
    """Return a file's text, or raise UnreadableFileError."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UnreadableFileError(file=str(path), reason=f"it is larger than {MAX_BYTES >> 20} MiB")
        return path.read_text(encoding="utf-8-sig")
    except OSError as cause:
        raise UnreadableFileError(file=str(path), reason=cause.strerror or str(cause)) from cause
    except UnicodeDecodeError as cause:
        raise UnreadableFileError(file=str(path), reason="it is not UTF-8 text") from cause


def _parse(text: str, path: Path) -> tuple[object, dict[str, int]]:
    try:
        content, lines = (_parse_json(text), {}) if path.suffix.lower() == ".json" else _parse_yaml(text)
        _check_values(content)
        return content, lines
    except (yaml.YAMLError, ValueError, RecursionError) as cause:
        reason = (
            "it is nested too deeply" if isinstance(cause, RecursionError) else " ".join(str(cause).split())
        )
        raise UnreadableFileError(file=str(path), reason=reason) from cause


def _parse_json(text: str) -> object:
    def pairs(items: list[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for name, value in items:
            if name in found:
                raise ValueError(f'the field "{name}" stands twice in one object')
            found[name] = value
        return found

    def constant(name: str) -> object:
        raise ValueError(f"{name} is not JSON")

    value: object = json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    return value


def _parse_yaml(text: str) -> tuple[object, dict[str, int]]:
    _check_depth(text)
    loader = Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None, {}
        sizes: dict[int, int] = {}
        if _size_of(node, sizes) > MAX_NODES:
            raise ValueError("its aliases expand to too much")
        lines = dict(_lines_of(node, "", set()))
        content: object = loader.construct_document(node)
        return content, lines
    finally:
        loader.dispose()


def _check_values(content: object) -> None:
    """Refuse what can be read but not shown again: deep nesting, also by aliases, and endless numbers."""
    level = [content]
    for _ in range(MAX_DEPTH + 1):
        if any(isinstance(value, int) and value.bit_length() > MAX_BITS for value in level):
            raise ValueError("it has a number that is too long")
        lists = [
            value.values() if isinstance(value, Mapping) else value for value in level if _is_nested(value)
        ]
        level = [inner for values in lists for inner in values]
        if not level:
            return
    raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")


def _is_nested(value: object) -> TypeGuard[Mapping[object, object] | list[object]]:
    return isinstance(value, Mapping | list)


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
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in names:
                    line = key.start_mark.line + 1
                    raise ValueError(
                        f'the field "{key.value}" stands twice in one object, again in line {line}'
                    )
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


def _with_calendar_files(content: object, folder: Path) -> object:
    """Put the days of calendars that are kept in files of their own in their place."""
    if isinstance(content, list):
        return [_with_calendar_files(item, folder) for item in content]
    if not isinstance(content, Mapping):
        return content
    changed = dict(content)
    if isinstance(content.get("jobs"), list):
        changed["jobs"] = _with_calendar_files(content["jobs"], folder)
    calendars = content.get("calendars")
    if isinstance(calendars, Mapping):
        changed["calendars"] = {name: _days_of(days, folder) for name, days in calendars.items()}
    return changed


def _days_of(days: object, folder: Path) -> object:
    if not isinstance(days, Mapping) or set(days) != {"file"} or not isinstance(days["file"], str):
        return days
    path = folder / days["file"]
    lines = (line.partition("#")[0].strip() for line in read_text(path).splitlines())
    found = [line for line in lines if line]
    if not found:
        raise InvalidJobFileError(
            problems=[Problem("calendars", days["file"], "the file has no days in it")], file=str(path)
        )
    return found
