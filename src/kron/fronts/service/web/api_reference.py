"""The API reference: the operations of the OpenAPI document, grouped by tag."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple


class Parameter(NamedTuple):
    """A parameter in a path, a query or a header."""

    name: str
    place: str
    is_required: bool
    kind: str
    description: str


class Operation(NamedTuple):
    """A method of a path."""

    name: str
    method: str
    path: str
    sentence: str
    parameters: list[Parameter]
    example: str | None
    responses: list[tuple[str, str]]


class Section(NamedTuple):
    """The operations with one tag."""

    name: str
    operations: list[Operation]


def sections_of(document: Mapping[str, Any]) -> list[Section]:
    """Return the operations of an OpenAPI document by tag."""
    sections: dict[str, list[Operation]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tag = operation.get("tags", ["other"])[0]
            sections.setdefault(tag, []).append(_operation(method, path, operation, document))
    return [Section(name, operations) for name, operations in sections.items()]


def _operation(
    method: str, path: str, operation: Mapping[str, Any], document: Mapping[str, Any]
) -> Operation:
    responses = [(status, response["description"]) for status, response in operation["responses"].items()]
    return Operation(
        operation["operationId"],
        method.upper(),
        path,
        operation.get("description", operation.get("summary", "")),
        [_parameter(each) for each in operation.get("parameters", ())],
        _example(operation.get("requestBody", {}), document),
        responses,
    )


def _parameter(parameter: Mapping[str, Any]) -> Parameter:
    schema = parameter["schema"]
    kinds = [each.get("type", "one of several") for each in schema.get("anyOf", [schema])]
    kind = " or ".join(each for each in kinds if each != "null")
    description = parameter.get("description", "")
    return Parameter(parameter["name"], parameter["in"], parameter.get("required", False), kind, description)


def _example(body: Mapping[str, Any], document: Mapping[str, Any]) -> str | None:
    """Return an example of a request body: the schema's, or one made of its fields' examples."""
    for media, content in body.get("content", {}).items():
        schema = _resolved(content.get("schema", {}), document)
        example = content.get("example", schema.get("example"))
        if example is None:
            fields = schema.get("properties", {})
            example = {name: _value(field) for name, field in fields.items()}
        return example if media.endswith("ndjson") else json.dumps(example, indent=2, ensure_ascii=False)
    return None


def _resolved(schema: Mapping[str, Any], document: Mapping[str, Any]) -> Mapping[str, Any]:
    options = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    name = options[0].get("$ref", "").rpartition("/")[2]
    resolved: Mapping[str, Any] = document["components"]["schemas"][name] if name else options[0]
    return resolved


def _value(field: Mapping[str, Any]) -> object:
    if field.get("examples"):
        return field["examples"][0]
    option = field.get("anyOf", [field])[0]
    if "enum" in option:
        return option["enum"][0]
    return field.get("default", {"boolean": True, "integer": 1}.get(option.get("type", ""), "..."))
