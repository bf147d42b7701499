"""The JSON Schemas of jobs and job files, from the tables that `Job.from_dict` reads by.

A schema checks shapes and names; whether an expression matches, a zone exists or a range is reversed is
checked when the job is made.
"""

from collections.abc import Iterator
from itertools import combinations

from kron.core.fields import FieldTable, Schema, object_schema, one_or_more
from kron.core.job.calendar import DAYS
from kron.core.job.job import JOB, PLACES, TABLES, Place

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def with_every_word(schema: Schema, table: FieldTable) -> Schema:
    """Return the JSON Schema of a document with every further word of its fields."""
    properties = schema["properties"]
    assert isinstance(properties, dict)
    further = {
        word: _schema_of(word, place, table) for word, place in PLACES.items() if word not in properties
    }
    required = schema.get("required", [])
    assert isinstance(required, list)
    words = {
        name: [name, *(word for word, place in PLACES.items() if place.path == name)] for name in required
    }
    return {
        **schema,
        "properties": {**properties, **further},
        "required": [name for name, each in words.items() if len(each) == 1],
        "allOf": [
            {"anyOf": [{"required": [word]} for word in each]} for each in words.values() if len(each) > 1
        ],
        "not": {"anyOf": list(_conflicts())},
    }


def _schema_of(word: str, place: Place, table: FieldTable) -> Schema:
    row = (table if place.holder is None else TABLES[place.holder]).words[place.words[0]]
    return {**row.type.schema, "description": f"another word for {place.path}"}


def _conflicts() -> Iterator[Schema]:
    """Yield a schema for each two words that name the same field."""
    by_path: dict[str, list[str]] = {}
    for word, place in PLACES.items():
        by_path.setdefault(place.path, [] if place.holder else [place.words[0]]).append(word)
    for words in by_path.values():
        for pair in combinations(words, 2):
            yield {"required": list(pair)}
    for word, place in PLACES.items():
        if place.holder is not None:
            for inner in place.words:
                held: Schema = {place.holder: {"type": "object", "required": [inner]}}
                yield {"required": [word, place.holder], "properties": held}


_JOB = with_every_word(JOB.schema(), JOB)
# In a job file a calendar may also be kept in a text file.
_FILE_CALENDARS: Schema = {
    "type": ["object", "null"],
    "additionalProperties": {
        "oneOf": [one_or_more(DAYS), object_schema({"file": {"type": "string"}}, required=("file",))]
    },
}
_NAME: Schema = {"type": "string", "description": "the identity is `<file stem>/<name>` where none is given"}


def _with_name(schema: Schema) -> Schema:
    """Return the schema of a job that may have a name in the place of an identity."""
    properties, every = schema["properties"], schema["allOf"]
    assert isinstance(properties, dict)
    assert isinstance(every, list)
    named: Schema = {"required": ["name"]}
    return {
        **schema,
        "properties": {**properties, "name": _NAME},
        "allOf": [
            {"anyOf": [*each["anyOf"], named]} if {"required": ["identity"]} in each["anyOf"] else each
            for each in every
        ],
    }


_FILE_JOB = with_every_word(
    object_schema(
        {
            **{word: row.schema_of(word) for row in JOB.rows for word in row.words},
            "calendars": {**_FILE_CALENDARS, "description": JOB["calendars"].doc},
        },
        required=JOB.required,
    ),
    JOB,
)
_FILE: Schema = {
    "oneOf": [
        {"$ref": "#/$defs/job"},
        {"type": "array", "items": {"$ref": "#/$defs/job"}},
        object_schema(
            {
                "jobs": {"type": "array", "items": {"$ref": "#/$defs/job"}},
                "calendars": _FILE_CALENDARS,
            },
            required=("jobs",),
        ),
    ],
}

SCHEMAS: dict[str, Schema] = {
    "job": {"$schema": DRAFT, "title": "Kron job", **_JOB},
    "jobfile": {"$schema": DRAFT, "title": "Kron job file", **_FILE, "$defs": {"job": _with_name(_FILE_JOB)}},
}
