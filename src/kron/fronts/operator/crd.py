"""The custom resources, generated from the field table of definitions, as structural schemas.

The API server validates, defaults and prunes by them. Whatever a schema cannot express, such as whether a
zone exists, is checked by the operator and reported as the condition `InvalidSpec`.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeAlias

from kron.core.fields import NO_DEFAULT, FieldSpec, FieldTable
from kron.core.job.constraint import CONSTRAINTS
from kron.core.job.distribution import PARAMETERS
from kron.core.job.job import JOB
from kron.core.job.policy import POLICY
from kron.core.job.seed import SEED
from kron.core.job.window import WINDOW
from kron.launchers.kubernetes.api import KRONCALENDARS, KRONJOBS, Resource

Structural: TypeAlias = dict[str, Any]
PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING: Structural = {"x-kubernetes-int-or-string": True}
RULES = "x-kubernetes-validations"
# Fields of a definition that a KronJob has another place for, or none.
LEFT_OUT = frozenset({"launcher", "tags", "retention", "notify"})
# The word for a deadline that never passes: null removes a field in Kubernetes.
NEVER = "never"
MAX_IDENTITY = 253
# How many Jobs that ended are kept by default, as for a CronJob.
HISTORY = {"successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1}
SAME_IDENTITY = (
    "has(self.identity) == has(oldSelf.identity)"
    " && (!has(self.identity) || self.identity == oldSelf.identity)"
)
# Both are timestamps in CEL, by their format.
IN_ORDER = "!has(self.startAt) || !has(self.endAt) || self.startAt <= self.endAt"
_TABLES: Mapping[str, FieldTable] = {"window": WINDOW, "seed": SEED, "policy": POLICY}


def camel(word: str) -> str:
    """Return a field's word as Kubernetes spells it: `dst_gap` is `dstGap`."""
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), word)


@cache
def words_of(table: str | None) -> Mapping[str, str]:
    """Return the words of a definition, or of one of its objects, by those of a KronJob."""
    rows = (JOB if table is None else _TABLES[table]).rows
    return {camel(row.word): row.word for row in rows if row.name not in LEFT_OUT}


# --- from the field table ------------------------------------------------------------------------------


def _objects(table: FieldTable) -> Structural:
    """Return the schema of an object with a field table."""
    return {"type": "object", "properties": {camel(row.word): _field(row) for row in table.rows}}


def _field(row: FieldSpec) -> Structural:
    schema = {**_value(row.type.schema), "description": row.doc}
    if row.default is not NO_DEFAULT and (default := row.type.write(row.default)) not in (None, "", [], {}):
        schema["default"] = default
    return schema


def _value(schema: Mapping[str, Any]) -> Structural:
    """Return the structural schema of a value: of several forms the one that is written."""
    for form in _forms(schema):
        if "enum" in form:
            return {"type": "string", "enum": [value for value in form["enum"] if value is not None]}
        match form.get("type"):
            case "array":
                return {"type": "array", "minItems": 1, "items": _item(form["items"])}
            case "string" | ["string", "null"]:
                return {"type": "string", **_pattern(form)}
            case "integer" | "number" | "boolean" as kind:
                return {"type": kind, **_bounds(form)}
            case ["integer", "null"]:
                return {"type": "integer", **_bounds(form)}
            case _:
                pass
    raise AssertionError(f"no structural form of {schema}")


def _forms(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the forms a value is read in, lists first."""
    if "oneOf" not in schema:
        yield schema
        return
    forms = [form for each in schema["oneOf"] for form in _forms(each)]
    yield from sorted(forms, key=lambda form: form.get("type") != "array")


def _item(schema: Mapping[str, Any]) -> Structural:
    kinds = {form.get("type") for form in _forms(schema)}
    return dict(INT_OR_STRING) if kinds == {"integer", "string"} else _value(schema)


def _bounds(schema: Mapping[str, Any]) -> Structural:
    bounds: Structural = {name: schema[name] for name in ("minimum", "maximum") if name in schema}
    if "exclusiveMinimum" in schema:
        bounds |= {"minimum": schema["exclusiveMinimum"], "exclusiveMinimum": True}
    return bounds


def _pattern(schema: Mapping[str, Any]) -> Structural:
    """Return the pattern of a text, unless it has escapes that the API server's expressions do not know."""
    pattern = schema.get("pattern")
    return {} if pattern is None or r"\u" in pattern else {"pattern": pattern}


def _distribution() -> Structural:
    """Return the schema of a distribution: its name, and the parameters of all of them."""
    parameters = {
        camel(row.word): {**_value(row.type.schema), "description": row.doc}
        for table in PARAMETERS.values()
        for row in table.rows
    }
    name = {"type": "string", "enum": list(PARAMETERS), "default": "uniform"}
    return {"type": "object", "properties": {"name": name, **parameters}, "default": {"name": "uniform"}}


def _days() -> Structural:
    return {"type": "array", "minItems": 1, "items": {"type": "string"}}


def _constraints() -> Structural:
    """Return the schema of the constraints; named calendars are those of the KronJob and KronCalendars."""
    sides = {}
    for side in CONSTRAINTS.rows:
        kinds = side.type.schema["properties"]
        assert isinstance(kinds, dict)
        fields = {
            name: {**(_days() if name == "calendars" else _value(kind)), "description": kind["description"]}
            for name, kind in kinds.items()
        }
        sides[side.word] = {"type": "object", "description": side.doc, "properties": fields}
    return {"type": "object", "properties": sides}


def _policy() -> Structural:
    policy = _objects(POLICY)
    deadline = policy["properties"]["deadline"]
    deadline["pattern"] = f"^({NEVER}|{deadline['pattern'].removeprefix('^').removesuffix('$')})$"
    deadline["description"] = f"how late a start may be, in whole seconds; `{NEVER}`: never too late"
    for name in ("startAt", "endAt"):
        policy["properties"][name]["format"] = "date-time"
    message = "endAt must not be before startAt"
    return {**policy, RULES: [{"rule": IN_ORDER, "message": message}]}


def _definition() -> Structural:
    """Return the fields of a definition, as those of a KronJob's spec."""
    special: dict[str, Structural] = {
        "identity": {"type": "string", "minLength": 1, "maxLength": MAX_IDENTITY},
        "schedule": {"type": "string", "minLength": 1},
        # No default: the expression may name the zone.
        "timezone": {"type": "string"},
        "window": _objects(WINDOW),
        "seed": _objects(SEED),
        "distribution": _distribution(),
        "constraints": _constraints(),
        "calendars": {"type": "object", "additionalProperties": _days()},
        "policy": _policy(),
    }
    rows = [row for row in JOB.rows if row.name not in LEFT_OUT]
    return {
        camel(row.word): {**special[row.name], "description": row.doc} if row.name in special else _field(row)
        for row in rows
    }


# --- documents -----------------------------------------------------------------------------------------


def _spec() -> Structural:
    template = {
        "type": "object",
        "description": "the Job that each run creates: its metadata and its spec",
        "required": ["spec"],
        "properties": {
            "metadata": {
                "type": "object",
                "properties": {
                    name: {"type": "object", "additionalProperties": {"type": "string"}}
                    for name in ("labels", "annotations")
                },
            },
            "spec": {"type": "object", PRESERVE: True},
        },
    }
    kept = "how many Jobs that {} are kept; older ones are deleted once their end is recorded"
    limits = {
        name: {"type": "integer", "minimum": 0, "default": default, "description": kept.format(how)}
        for (name, default), how in zip(HISTORY.items(), ("succeeded", "failed"), strict=True)
    }
    return {
        "type": "object",
        "required": ["schedule", "jobTemplate"],
        "properties": {**_definition(), "jobTemplate": template, **limits},
        RULES: [{"rule": SAME_IDENTITY, "message": "identity is fixed: it seeds the decisions"}],
    }


def _texts(**fields: str) -> Structural:
    return {name: {"type": "string", "description": doc} for name, doc in fields.items()}


def _period() -> Structural:
    return {
        **_texts(
            periodId="the nominal time in UTC, which identifies the period",
            chosenTime="when it was to start",
            outcome="executed, skipped, missed or unschedulable; absent while it waits",
            reason="the code of the reason",
            message="the reason in words",
            result="how the execution ended",
            job="the Job that was created last",
            until="the last period of several that ended together",
        ),
        "attempt": {"type": "integer"},
        "periods": {"type": "integer"},
    }


def _status_objects() -> Structural:
    condition = {
        **_texts(type="", status="", reason="", message="", lastTransitionTime=""),
        "observedGeneration": {"type": "integer"},
    }
    times = _texts(nominalTime="the time the schedule names", chosenTime="when it starts")
    return {
        "next": {"type": "object", "properties": times, "description": "the next start"},
        "conditions": {
            "type": "array",
            "items": {"type": "object", "required": ["type", "status"], "properties": condition},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
        "periods": {
            "type": "array",
            "description": "the last periods, newest first",
            "items": {"type": "object", "properties": _period()},
        },
    }


def _status() -> Structural:
    numbers = {
        "observedGeneration": "",
        "active": "how many runs are active",
        "fencingToken": "of the last writer",
    }
    return {
        "type": "object",
        "properties": {
            **_texts(
                identity="the name that seeds the decisions; fixed at the first reconcile",
                lastOutcome="the outcome of the last period",
                lastPeriod="the last period with an outcome",
                paused="why the job is paused, if it is",
                runRequest="the last manual run that was recorded",
                state="the operator's record of this job, in its own format",
            ),
            **{name: {"type": "integer", "description": doc} for name, doc in numbers.items()},
            **_status_objects(),
        },
    }


# A date is shown as an age, and one ahead as <invalid>: the next start is a text.
COLUMNS = (
    ("Schedule", "string", ".spec.schedule", 0),
    ("Next", "string", ".status.next.chosenTime", 0),
    ("Last", "string", ".status.lastOutcome", 0),
    ("Active", "integer", ".status.active", 0),
    ("Suspended", "boolean", ".spec.policy.suspend", 0),
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 0),
    ("Zone", "string", ".spec.timezone", 1),
    ("Paused", "string", ".status.paused", 1),
    ("Age", "date", ".metadata.creationTimestamp", 0),
)


def _crd(resource: Resource, short: str, spec: Structural, status: Structural | None) -> dict[str, Any]:
    version: dict[str, Any] = {"name": resource.version, "served": True, "storage": True}
    properties: Structural = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": spec,
    }
    if status is not None:
        properties["status"] = status
        version["subresources"] = {"status": {}}
        version["additionalPrinterColumns"] = [
            {"name": name, "type": kind, "jsonPath": path, "priority": priority}
            for name, kind, path, priority in COLUMNS
        ]
    schema = {"type": "object", "required": ["spec"], "properties": properties}
    version["schema"] = {"openAPIV3Schema": schema}
    names = {"plural": resource.plural, "singular": resource.kind.lower(), "kind": resource.kind}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {**names, "shortNames": [short], "categories": ["all"] if status is not None else []},
            "versions": [version],
        },
    }


@cache
def crds() -> tuple[dict[str, Any], ...]:
    """Return the definitions of both custom resources."""
    days = {**_days(), "description": "days, or spans of days `A..B`, both included"}
    calendar = {"type": "object", "required": ["days"], "properties": {"days": days}}
    return (
        _crd(KRONJOBS, "kj", _spec(), _status()),
        _crd(KRONCALENDARS, "kcal", calendar, None),
    )
