"""The JSON Schema of what `Job.from_dict` and job files accept.

The schema checks shapes and names; what a schema cannot say (whether an expression matches, a zone
exists, a range is reversed) is checked when the job is made.
"""

from typing import TypeAlias

from kron.core.cron.dialect import DIALECTS
from kron.core.cron.field import MONTH, WEEKDAY, Unit
from kron.core.cron.timeline import GAP_CHOICES, REPEAT_CHOICES
from kron.core.job.distribution import Dir, Mu
from kron.core.job.parse import DOM, HOURS, MIN_RATE, PARAMETERS
from kron.core.job.policy import BOUNDS, CATCHUP_NAMES, ORPHAN_NAMES, OVERLAP_NAMES
from kron.core.job.seed import SeedStrategy
from kron.core.job.window import MODE_NAMES

Schema: TypeAlias = dict[str, object]

DRAFT = "https://json-schema.org/draft/2020-12/schema"

_NUMBER = r"[0-9]{1,20}(\.[0-9]{1,20})?"
_ISO = rf"[Pp]({_NUMBER}[Ww])?({_NUMBER}[Dd])?([Tt]({_NUMBER}[Hh])?({_NUMBER}[Mm])?({_NUMBER}[Ss])?)?"
DURATION: Schema = {
    "description": "90s, 1h30m, ISO 8601 PT90M, or a number of seconds",
    "oneOf": [
        {"type": "string", "pattern": rf"^\s*({_NUMBER}|({_NUMBER}(ms|us|[wdhms]))+|{_ISO})\s*$"},
        {"type": "number", "minimum": 0},
    ],
}
_DAY = r"\s*[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])\s*"
DAYS: Schema = {"type": "string", "pattern": rf"^{_DAY}(\.\.{_DAY})?$"}
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9]"
# Something to read, and nothing that ends a line.
_ON_A_LINE = r"[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029\x00]*"
_IDENTITY = rf"^{_ON_A_LINE}[^\s\x1c-\x1f\x85\x00]{_ON_A_LINE}$"
INSTANT: Schema = {
    "type": ["string", "null"],
    "description": "an instant with its offset, e.g. 2026-03-29T01:00:00Z",
}
POSITIVE: Schema = {"type": "number", "exclusiveMinimum": 0}


def _object(properties: dict[str, Schema], *, required: tuple[str, ...] = ()) -> Schema:
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": list(required)} if required else schema


def _one_or_more(item: Schema) -> Schema:
    return {"oneOf": [item, {"type": "array", "items": item, "minItems": 1}]}


def _number_or_name(unit: Unit, high: int) -> Schema:
    """Return a number, a name, or a range of them."""
    names = [part for name in unit.names for part in (name, name[:3])]
    word = "|".join(["[0-9]{1,4}", *(_any_case(name) for name in names)])
    return {
        "oneOf": [
            {"type": "integer", "minimum": unit.low, "maximum": high},
            {"type": "string", "pattern": rf"^\s*({word})\s*(-\s*({word})\s*)?$"},
        ]
    }


def _whole(name: str) -> Schema:
    """Return a whole number of a policy, within its bounds."""
    low, high = BOUNDS[name]
    return {"type": "integer", "minimum": low, "maximum": high}


def _any_case(name: str) -> str:
    return "".join(f"[{letter.upper()}{letter}]" for letter in name)


def _distribution(name: str) -> Schema:
    return _object(
        {"name": {"const": name}, **{p: _PARAMETER[p] for p in PARAMETERS[name]}}, required=("name",)
    )


_PARAMETER: dict[str, Schema] = {
    "shape": {**POSITIVE, "default": 2},
    "mu": {"enum": [mu.value for mu in Mu]},
    "sigma": {"oneOf": [DURATION, {"type": "null"}], "not": {"enum": [0, 0.0, "0", "0s"]}},
    "lambda": {"type": "number", "minimum": MIN_RATE, "default": 1},
    "dir": {"enum": [end.value for end in Dir], "default": Dir.EARLY.value},
}
_CALENDARS: Schema = {"type": "object", "additionalProperties": _one_or_more(DAYS)}
_RULE: Schema = _object(
    {
        "hours": _one_or_more(_number_or_name(HOURS, 23)),
        "dow": _one_or_more(_number_or_name(WEEKDAY, 7)),
        "dom": _one_or_more(_number_or_name(DOM, 31)),
        "months": _one_or_more(_number_or_name(MONTH, 12)),
        "between": _one_or_more({"type": "string", "pattern": rf"^{_CLOCK}-{_CLOCK}$"}),
        "dates": _one_or_more(DAYS),
        "calendars": {
            "oneOf": [_one_or_more({"type": "string"}), {**_CALENDARS, "minProperties": 1}],
            "description": "names of calendars, or calendars in full",
        },
    }
)
_REQUIRED = ("identity", "schedule")
_JOB_FIELDS: dict[str, Schema] = {
    "identity": {"type": "string", "pattern": _IDENTITY, "description": "the job's stable name"},
    "schedule": {"type": "string", "description": "a cron expression", "examples": ["0 9 * * mon-fri"]},
    "timezone": {"type": ["string", "null"], "default": "UTC", "examples": ["Europe/Berlin"]},
    "dialect": {"enum": [*DIALECTS, None], "default": "extended"},
    "dst_gap": {"enum": [*GAP_CHOICES, None], "default": GAP_CHOICES[0]},
    "dst_repeat": {"enum": [*REPEAT_CHOICES, None], "default": REPEAT_CHOICES[0]},
    "window": _object(
        {
            "mode": {"enum": list(MODE_NAMES), "default": "after"},
            "duration": {**DURATION, "default": "0s"},
        }
    ),
    "distribution": {
        "oneOf": [{"enum": list(PARAMETERS)}, *(_distribution(name) for name in PARAMETERS)],
        "default": {"name": "uniform"},
    },
    "seed": _object(
        {
            "strategy": {"enum": [strategy.value for strategy in SeedStrategy], "default": "stable"},
            "salt": {"type": "string", "default": ""},
        }
    ),
    "constraints": _object({"only": _RULE, "avoid": _RULE}),
    "calendars": _CALENDARS,
    "policy": _object(
        {
            "concurrency": {"enum": list(OVERLAP_NAMES), "default": "forbid"},
            "overlap": {"enum": list(OVERLAP_NAMES), "description": "another word for concurrency"},
            "deadline": {"oneOf": [DURATION, {"type": "null"}], "default": "0s"},
            "suspend": {"type": "boolean", "default": False},
            "catchup": {"enum": list(CATCHUP_NAMES), "default": "all"},
            "on_orphan": {"enum": list(ORPHAN_NAMES), "default": "fail"},
            "jitter_ms": {**_whole("jitter_ms"), "default": 0},
            "retry_delay": {"oneOf": [DURATION, {"type": "null"}]},
            "run_timeout": {"oneOf": [DURATION, {"type": "null"}]},
            "replace_grace": {**DURATION, "default": "10s"},
            "queue_max": {**_whole("queue_max"), "default": 100},
            "max_catchup": {**_whole("max_catchup"), "default": 1000},
            "start_at": INSTANT,
            "end_at": INSTANT,
            "remaining": {**_whole("remaining"), "type": ["integer", "null"]},
            "pause_after_failures": {**_whole("pause_after_failures"), "type": ["integer", "null"]},
        }
    )
    | {"not": {"required": ["concurrency", "overlap"]}},
}
_JOB: Schema = _object(_JOB_FIELDS, required=_REQUIRED)
# In a file, and only there, a calendar may be kept in a file of its own.
_FILE_CALENDARS: Schema = {
    "type": ["object", "null"],
    "additionalProperties": {
        "oneOf": [_one_or_more(DAYS), _object({"file": {"type": "string"}}, required=("file",))]
    },
}
_FILE_JOB: Schema = _object({**_JOB_FIELDS, "calendars": _FILE_CALENDARS}, required=_REQUIRED)
_FILE: Schema = {
    "oneOf": [
        {"$ref": "#/$defs/job"},
        {"type": "array", "items": {"$ref": "#/$defs/job"}},
        _object(
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
