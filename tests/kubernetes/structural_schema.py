"""The schemas of CRDs: which are structural, and what they default, prune and refuse."""

import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from jsonschema import Draft202012Validator

Doc = dict[str, Any]


class UnknownRuleError(Exception):
    """A rule in CEL that this double does not know."""


# --- structural schemas --------------------------------------------------------------------------------

PRESERVE, INT_OR_STRING = "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"
# Keywords that a structural schema may have inside anyOf, oneOf, allOf and not.
FORBIDDEN_INSIDE = (
    "description",
    "default",
    "additionalProperties",
    "nullable",
    "title",
    PRESERVE,
    INT_OR_STRING,
)
# Keywords that bound the size of a value.
BOUNDS = {
    "string": {"maxLength", "enum", "format"},
    "array": {"maxItems"},
    "object": {"maxProperties", "properties"},
}
# Look-around, references to groups, and escapes that the regular expressions of Go do not have.
NOT_RE2 = r"\(\?[=!<]|\\[1-9uZ]"
KEYWORDS = frozenset(
    {
        "type", "properties", "items", "required", "enum", "pattern", "minimum", "maximum",
        "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems",
        "minProperties", "maxProperties",
        "anyOf", "oneOf", "allOf", "not", "default", "description", "nullable", "format", "title",
        "additionalProperties", "x-kubernetes-validations", "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys", "x-kubernetes-map-type", PRESERVE, INT_OR_STRING,
    }
)  # fmt: skip


def structural_faults(schema: Doc, path: str = "", *, inside: bool = False) -> Iterator[str]:
    """Yield why a schema is not structural (apiextensions.k8s.io/v1)."""
    yield from _faults_of_node(schema, path)
    if inside:
        yield from _faults_inside(schema, path)
    elif not {"type", INT_OR_STRING, PRESERVE} & schema.keys():
        yield f"{path}: no type"
    for name, each in schema.get("properties", {}).items():
        yield from structural_faults(each, f"{path}.{name}", inside=inside)
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from structural_faults(schema[name], f"{path}.{name}", inside=inside)
    for name in ("anyOf", "oneOf", "allOf"):
        for number, each in enumerate(schema.get(name, [])):
            marked = "!int-or-string" if schema.get(INT_OR_STRING) else ""
            yield from structural_faults(each, f"{path}.{name}[{number}]{marked}", inside=True)
    if "not" in schema:
        yield from structural_faults(schema["not"], f"{path}.not", inside=True)


def _faults_of_node(schema: Doc, path: str) -> Iterator[str]:
    for name in schema.keys() - KEYWORDS:
        yield f"{path}: unknown keyword {name}"
    if isinstance(schema.get("type"), list) or schema.get("type") == "null":
        yield f"{path}: one type only"
    if not isinstance(schema.get("exclusiveMinimum", False), bool):
        yield f"{path}: exclusiveMinimum is a flag beside minimum"
    if "properties" in schema and isinstance(schema.get("additionalProperties"), dict):
        yield f"{path}: properties beside additionalProperties"
    if schema.get("additionalProperties") is False:
        yield f"{path}: additionalProperties: false is not allowed"
    if schema.get("type") == "array" and "items" not in schema:
        yield f"{path}: an array without items"
    yield from _faults_of_values(schema, path)
    yield from _unbounded(schema, path)


def _faults_of_values(schema: Doc, path: str) -> Iterator[str]:
    if schema.get(PRESERVE) and schema.get("type") != "object":
        yield f"{path}: unknown fields of something that is no object"
    if re.search(NOT_RE2, schema.get("pattern", "")):
        yield f"{path}: a pattern that RE2 does not know"
    if "default" in schema:
        for error in Draft202012Validator(_plain(schema)).iter_errors(schema["default"]):
            yield f"{path}: the default is invalid: {error.message}"


def _unbounded(schema: Doc, path: str) -> Iterator[str]:
    """Yield the fields that rules read and whose size has no bound: such a rule would cost too much."""
    for rule in schema.get("x-kubernetes-validations", []):
        for name in set(re.findall(r"(?:self|oldSelf)\.(\w+)", rule["rule"])):
            field = schema.get("properties", {}).get(name)
            if field is None:
                yield f"{path}: a rule reads {name}, which is no field"
            elif field["type"] in BOUNDS and not BOUNDS[field["type"]] & field.keys():
                yield f"{path}.{name}: a rule reads it, and it has no bound"


def _faults_inside(schema: Doc, path: str) -> Iterator[str]:
    for name in FORBIDDEN_INSIDE:
        if name in schema:
            yield f"{path}: {name} inside a junctor"
    if "type" in schema and not path.endswith("!int-or-string"):
        yield f"{path}: type inside a junctor"


def set_defaults(schema: Doc, value: Any) -> None:
    if isinstance(value, dict):
        for name, each in schema.get("properties", {}).items():
            if name not in value and "default" in each:
                value[name] = deepcopy(each["default"])
            if name in value:
                set_defaults(each, value[name])
        if isinstance(schema.get("additionalProperties"), dict):
            for item in value.values():
                set_defaults(schema["additionalProperties"], item)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            set_defaults(schema["items"], item)


def prune(schema: Doc, value: Any) -> None:
    """Remove the fields that a schema does not have."""
    if isinstance(value, dict):
        fields, further = schema.get("properties", {}), schema.get("additionalProperties")
        for name in list(value):
            if name in fields:
                prune(fields[name], value[name])
            elif isinstance(further, dict):
                prune(further, value[name])
            elif not schema.get(PRESERVE) and further is not True:
                del value[name]
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            prune(schema["items"], item)


def _plain(schema: Any) -> Any:
    """Return a structural schema as a JSON Schema."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {name: _plain(each) for name, each in schema.items() if not name.startswith("x-kubernetes")}
    if schema.get(INT_OR_STRING):
        plain["type"] = ["integer", "string"]
    if plain.pop("nullable", False) and "type" in plain:
        plain["type"] = [plain["type"], "null"]
    if plain.get("exclusiveMinimum") is True:
        plain["exclusiveMinimum"] = plain.pop("minimum")
    return plain


# Validators by the identity of their schema, which is kept beside: making one takes longer than using it.
_VALIDATORS: dict[int, tuple[Doc, Draft202012Validator]] = {}


def faults_of(schema: Doc, document: Doc) -> Iterator[str]:
    """Yield why a document does not follow a schema."""
    if id(schema) not in _VALIDATORS:
        left_out = ("metadata", "kind")
        properties = {name: each for name, each in schema["properties"].items() if name not in left_out}
        plain = _plain({**schema, "properties": properties})
        _VALIDATORS[id(schema)] = schema, Draft202012Validator(plain)
    for error in _VALIDATORS[id(schema)][1].iter_errors(document):
        yield f"{'.'.join(map(str, error.absolute_path))}: {error.message}"


# --- rules ---------------------------------------------------------------------------------------------

# The rules of CRDs in CEL that this double knows, in Python. A rule it does not know refuses the object.
CEL: dict[str, Callable[[Any, Any], bool]] = {
    "self == oldSelf": lambda new, old: bool(new == old),
    (
        "has(self.identity) == has(oldSelf.identity)"
        " && (!has(self.identity) || self.identity == oldSelf.identity)"
    ): (
        lambda new, old: new.get("identity") == old.get("identity")
    ),
    "!has(self.startAt) || !has(self.endAt) || self.startAt <= self.endAt": (
        lambda new, _: "startAt" not in new or "endAt" not in new or new["startAt"] <= new["endAt"]
    ),
}  # fmt: skip


def broken_rules(schema: Doc, value: Any, before: Any, path: str = "") -> Iterator[str]:
    for each in schema.get("x-kubernetes-validations", []):
        rule = each["rule"]
        if "oldSelf" in rule and before is None:
            continue
        if rule not in CEL:
            raise UnknownRuleError(rule)
        if not CEL[rule](value, before):
            yield f"{path}: {each.get('message', rule)}"
    if isinstance(value, dict):
        for name, part in schema.get("properties", {}).items():
            if name in value:
                old = before.get(name) if isinstance(before, dict) else None
                yield from broken_rules(part, value[name], old, f"{path}.{name}")
