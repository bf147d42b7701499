"""The JSON Schemas of jobs and job files, from the tables that `Job.from_dict` reads by.

A schema checks shapes and names; whether an expression matches, a zone exists or a range is reversed is
checked when the job is made.
"""

from kron.core.fields import Schema, object_schema, one_or_more
from kron.core.job.calendar import DAYS
from kron.core.job.job import JOB
from kron.core.job.words import with_every_word

DRAFT = "https://json-schema.org/draft/2020-12/schema"

_JOB = with_every_word(JOB.schema(), JOB)
# In a job file a calendar may also be kept in a text file.
_FILE_CALENDARS: Schema = {
    "type": ["object", "null"],
    "additionalProperties": {
        "oneOf": [one_or_more(DAYS), object_schema({"file": {"type": "string"}}, required=("file",))]
    },
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
    "jobfile": {"$schema": DRAFT, "title": "Kron job file", **_FILE, "$defs": {"job": _FILE_JOB}},
}
