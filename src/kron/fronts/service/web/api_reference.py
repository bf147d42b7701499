"""The API reference: the operations of the OpenAPI document, grouped by tag."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote


class Parameter(NamedTuple):
    """A parameter in a path, a query or a header."""

    name: str
    place: str
    is_required: bool
    kind: str
    description: str


class BodyField(NamedTuple):
    """A field of a request body; those of nested objects have dotted names."""

    name: str
    kind: str
    is_required: bool
    default: str | None
    description: str


class Operation(NamedTuple):
    """A method of a path; `command` sends an example of it."""

    name: str
    method: str
    path: str
    sentence: str
    parameters: list[Parameter]
    fields: list[BodyField]
    command: str
    responses: list[tuple[str, str]]


class Section(NamedTuple):
    """The operations with one tag."""

    name: str
    operations: list[Operation]


# The values of path parameters in examples: those of the examples of bodies.
PATH_VALUES = {
    "dag_id": "report",
    "run_id": "4f1c0c6c0b7d4f0e9d0b0d7f7a1f6f1e",
    "schedule_id": "daily-report",
    "period_id": "2026-06-01T06:30:00Z",
    "workflow_id": "report",
    "version": "3",
    "idempotency_key": "daily-2026-06-01",
}
# How deep nested objects are described.
MAX_DEPTH = 4


def sections_of(document: Mapping[str, Any], base: str, headers: Sequence[str] = ()) -> list[Section]:
    """Return the operations of an OpenAPI document by tag; examples are sent to `base` with `headers`."""
    sections: dict[str, list[Operation]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tag = operation.get("tags", ["other"])[0]
            described = _operation(method, path, operation, document)
            body = _example(operation.get("requestBody", {}), document)
            command = _command(f"{base}{_filled(path)}", method.upper(), body, headers)
            sections.setdefault(tag, []).append(described._replace(command=command))
    return [Section(name, operations) for name, operations in sections.items()]


def _operation(
    method: str, path: str, operation: Mapping[str, Any], document: Mapping[str, Any]
) -> Operation:
    responses = [(status, response["description"]) for status, response in operation["responses"].items()]
    contents = operation.get("requestBody", {}).get("content", {}).values()
    fields = {
        field.name: field
        for content in contents
        for field in _fields_of(content.get("schema", {}), document, "", MAX_DEPTH)
    }
    return Operation(
        operation["operationId"],
        method.upper(),
        path,
        operation.get("description", operation.get("summary", "")),
        [_parameter(each) for each in operation.get("parameters", ())],
        list(fields.values()),
        "",
        responses,
    )


def _parameter(parameter: Mapping[str, Any]) -> Parameter:
    schema = parameter["schema"]
    kinds = [each.get("type", "one of several") for each in schema.get("anyOf", [schema])]
    kind = " or ".join(each for each in kinds if each != "null")
    description = parameter.get("description", "")
    return Parameter(parameter["name"], parameter["in"], parameter.get("required", False), kind, description)


# --- fields ----------------------------------------------------------------------------------------


def _fields_of(
    schema: Mapping[str, Any], document: Mapping[str, Any], prefix: str, depth: int
) -> Iterator[BodyField]:
    """Yield the fields of an object and of the objects in it."""
    for option in _options(schema, document):
        required = option.get("required", ())
        for name, field in option.get("properties", {}).items():
            options = _options(field, document)
            texts = [each["description"] for each in (field, *options) if "description" in each]
            default = next((each["default"] for each in (field, *options) if "default" in each), None)
            yield BodyField(
                f"{prefix}{name}",
                _kind_of(options),
                name in required,
                None if default is None else json.dumps(default, ensure_ascii=False),
                texts[0] if texts else "",
            )
            if depth > 1:
                yield from _fields_of(field, document, f"{prefix}{name}.", depth - 1)


def _options(schema: Mapping[str, Any], document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the alternatives of a schema except null, with references resolved."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _options(document["components"]["schemas"][name], document)
    alternatives = schema.get("anyOf", schema.get("oneOf"))
    if alternatives is None:
        return [] if schema.get("type") == "null" else [schema]
    return [option for each in alternatives for option in _options(each, document)]


def _kind_of(options: Sequence[Mapping[str, Any]]) -> str:
    """Return the types of a field, and its values if it is a choice."""
    kinds: dict[str, None] = {}
    for option in options:
        values = option.get("enum", [option["const"]] if "const" in option else None)
        if values is not None:
            kinds.update((f"`{value}`", None) for value in values if value is not None)
        else:
            kind = option.get("type", "any value")
            names = kind if isinstance(kind, list) else [kind]
            kinds.update((name, None) for name in names if name != "null")
    return ", ".join(kinds)


# --- examples --------------------------------------------------------------------------------------


def _filled(path: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: quote(PATH_VALUES[match[1]], safe=""), path)


def _command(url: str, method: str, body: tuple[str, str] | None, headers: Sequence[str]) -> str:
    """Return a command that sends a request; a shell reads it as it is."""
    parts = ["curl"]
    if method != "GET" and (method != "POST" or body is None):
        parts += ["-X", method]
    parts.append(url)
    for header in headers:
        parts += ["-H", header]
    if body is not None:
        parts += ["-H", f"content-type: {body[0]}", "--data-binary", body[1]]
    return " ".join(map(_quoted, parts))


def _quoted(part: str) -> str:
    """Return a word for a shell; one with a variable keeps it."""
    return f'"{part}"' if "$KRON_TOKEN" in part else shlex.quote(part)


def _example(body: Mapping[str, Any], document: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the media type and an example of a request body: a given one, or one of its fields' examples."""
    for media, content in body.get("content", {}).items():
        options = _options(content.get("schema", {}), document)
        named: list[Mapping[str, Any]] = list(content.get("examples", {}).values())
        given = [each["value"] for each in named]
        given += [each["example"] for each in (content, *options) if "example" in each]
        example = given[0] if given else _made(options[0], document)
        text = example if isinstance(example, str) else json.dumps(example, indent=2, ensure_ascii=False)
        return media, text
    return None


def _made(schema: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, object]:
    """Return an object of the examples of its fields; one without an example is left out if it may be."""
    made: dict[str, object] = {}
    for name, field in schema.get("properties", {}).items():
        options = [field, *_options(field, document)]
        given = next((each["examples"][0] for each in options if each.get("examples")), None)
        if given is None and name in schema.get("required", ()):
            choices = next((each["enum"] for each in options if "enum" in each), None)
            given = (
                choices[0] if choices else {"boolean": True, "integer": 1}.get(options[-1].get("type", ""))
            )
        if given is not None:
            made[name] = given
    return made
