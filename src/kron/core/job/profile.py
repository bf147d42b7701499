"""The profile of a job: what its definition says beside times and policy.

A profile changes no decision, so an edit of it alone opens no new epoch. It is stored as one text with the
job; a new field is a row here and a field of `Job`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache

from kron.core.fields import (
    FieldReader,
    FieldSpec,
    FieldTable,
    Schema,
    ValueType,
    invalid_value,
    parse_name,
    parse_text,
    part,
    row,
    table_of,
)
from kron.core.value_types import DURATION, NAME_TEXT, nullable, whole_number

# Upper bounds: a profile is read with every due job.
MAX_DESCRIPTION, MAX_TAGS, MAX_TAG = 2_000, 50, 100
MAX_KEPT_RUNS = 1_000_000
# Written for a history that is never pruned.
FOREVER = "forever"
# How many different retentions are kept ready, each with its profile; many jobs share few.
MAX_PROFILES = 200


def _parse_keep(value: object) -> object:
    return timedelta.max if value == FOREVER else DURATION.parse(value)


KEEP = ValueType(
    schema={"oneOf": [DURATION.schema, {"const": FOREVER}]},
    parse=_parse_keep,
    check=DURATION.check,
    write=lambda value: FOREVER if value == timedelta.max else DURATION.write(value),
    written={"type": "string"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long the history of one job is kept; None is the setting of the front that runs it."""

    keep: timedelta | None = field(
        default=None,
        metadata=row(
            nullable(KEEP),
            "runs that last changed longer ago are pruned; `forever`: none; `null`: as the settings say",
            sparse=True,
        ),
    )
    keep_runs: int | None = field(
        default=None,
        metadata=row(
            nullable(whole_number(0, MAX_KEPT_RUNS)),
            "how many of the newest runs stay, however old; `null`: as the settings say",
            sparse=True,
        ),
    )

    def __post_init__(self) -> None:
        """Check both values."""
        RETENTION.check(self)


RETENTION = table_of(Retention)


def read_retention(reader: FieldReader) -> Retention:
    """Return the retention of a definition."""
    return RETENTION.build(reader, Retention)


def _parse_description(value: object) -> str:
    text = parse_text(value)
    if len(text) > MAX_DESCRIPTION:
        raise invalid_value(None, f"is longer than {MAX_DESCRIPTION} characters")
    return text


def _parse_tags(value: object) -> tuple[str, ...]:
    """Return tags in order, each once."""
    if not isinstance(value, list | tuple):
        raise invalid_value(value, "must be a list of strings")
    tags = tuple(sorted({parse_name(tag) for tag in value}))
    if len(tags) > MAX_TAGS:
        raise invalid_value(None, f"has {len(tags)} tags; at most {MAX_TAGS} are allowed")
    if long := next((tag for tag in tags if len(tag) > MAX_TAG), None):
        raise invalid_value(long, f"a tag is longer than {MAX_TAG} characters")
    return tags


def _check_tags(value: object) -> object:
    tags = _parse_tags(value)
    return value if tags == value else tags


_TAG_LIST: Schema = {
    "type": "array", "items": {**NAME_TEXT.schema, "maxLength": MAX_TAG}, "maxItems": MAX_TAGS,
}  # fmt: skip
DESCRIPTION_TEXT = ValueType(
    schema={"type": "string", "maxLength": MAX_DESCRIPTION},
    parse=_parse_description,
    check=_parse_description,
)
TAGS = ValueType(
    schema=_TAG_LIST,
    parse=_parse_tags,
    check=_check_tags,
    write=lambda value: list(value) if isinstance(value, tuple) else value,
)


def _check_retention(value: object) -> object:
    if not isinstance(value, Retention):
        raise invalid_value(value, "must be a Retention")
    return value


def _retention_type() -> ValueType:
    inner = part(RETENTION, read_retention)
    return ValueType(
        schema=inner.schema,
        parse=inner.parse,
        check=_check_retention,
        write=inner.write,
        written=inner.written,
    )


def _profile_row(name: str, type_: ValueType, doc: str, default: object) -> FieldSpec:
    return FieldSpec(name, type_, doc, default, (name,), name, sparse=True)


PROFILE = FieldTable(
    (
        _profile_row("description", nullable(DESCRIPTION_TEXT), "what the job is for, in any words", None),
        _profile_row("tags", TAGS, "names to find jobs by; their order does not matter", ()),
        _profile_row("retention", nullable(_retention_type()), "how long the job's history is kept", None),
    )
)


def profile_fields_of(text: str | None) -> dict[str, object]:
    """Return every field of a stored profile as plain data, with its default where it has none."""
    stored = _stored(text)
    return {row.name: stored.get(row.name, row.type.write(row.default)) for row in PROFILE.rows}


def retention_of(text: str | None) -> Retention | None:
    """Return the retention in a stored profile, or None."""
    # Most have none, and may be long.
    return None if text is None or '"retention"' not in text else _retention_of(text)


@lru_cache(maxsize=MAX_PROFILES)
def _retention_of(text: str) -> Retention | None:
    fields = _stored(text).get("retention")
    return None if fields is None else read_retention(FieldReader(fields, "", [], known=RETENTION.words))


def _stored(text: str | None) -> Mapping[str, object]:
    """Return the fields of a stored profile; a damaged one has none."""
    try:
        fields = json.loads(text) if text else {}
    except ValueError:
        return {}
    return fields if isinstance(fields, Mapping) else {}
