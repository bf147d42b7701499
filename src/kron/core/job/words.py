"""The words of definitions: SPEC 3's and SPEC 4's names of every field are read, and one is written.

A document may name a field by another word, or put a field of an object beside it: `cron_expr` is `schedule`,
`window_mode` is `window.mode`, `overlap_policy` is `policy.concurrency`.
"""

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

from kron.core.errors import Problem
from kron.core.fields import FieldSpec, FieldTable, Schema
from kron.core.job.policy import POLICY
from kron.core.job.seed import SEED
from kron.core.job.window import WINDOW
from kron.core.value_types import NAME_TEXT, VERSION


class Place(NamedTuple):
    """Where a field belongs: the object that holds it, none for the document, and the words it has there."""

    holder: str | None
    words: tuple[str, ...]

    @property
    def path(self) -> str:
        """Return the path under which the field is written."""
        return self.words[0] if self.holder is None else f"{self.holder}.{self.words[0]}"


def _flat(holder: str, table: FieldTable, prefix: str = "") -> dict[str, Place]:
    """Return the words of an object's fields when they stand beside it."""
    return {
        f"{prefix}{word}": Place(holder, row.words)
        for row in table.rows
        for word in (*row.words, row.service_word)
        if word is not None
    }


# The workflow of a schedule document: the fields every launcher object has (SPEC 3: 3).
WORKFLOW = FieldTable(
    (
        FieldSpec("workflow_id", NAME_TEXT, "the workflow that is run", None, ("workflow_id",)),
        FieldSpec("version", VERSION, "its version", None, ("version",)),
        FieldSpec("user_id", NAME_TEXT, "the user who owns the job", None, ("user_id",)),
    )
)
# Every further word of a document, with its place.
PLACES: Mapping[str, Place] = {
    "schedule_id": Place(None, ("identity",)),
    "cron_expr": Place(None, ("schedule",)),
    **_flat("window", WINDOW, "window_"),
    **_flat("seed", SEED, "seed_"),
    "salt": Place("seed", SEED["salt"].words),
    **_flat("policy", POLICY),
    **_flat("launcher", WORKFLOW),
}
_TABLES = {"window": WINDOW, "seed": SEED, "policy": POLICY, "launcher": WORKFLOW}


class Canonical(NamedTuple):
    """A document in the words that are written; `renamed` has the word that was used for a path."""

    document: Mapping[str, object]
    renamed: Mapping[str, str]


def canonical(document: Mapping[str, object], problems: list[Problem]) -> Canonical:
    """Return a document with every field under its own word, in its own object.

    A field that is given twice is a problem.
    """
    if PLACES.keys().isdisjoint(document):
        return Canonical(document, {})
    fields = {word: value for word, value in document.items() if word not in PLACES}
    renamed: dict[str, str] = {}
    for word, value in document.items():
        place = PLACES.get(word)
        if place is None:
            continue
        holder = fields if place.holder is None else _held(fields, place.holder)
        if holder is None:
            continue  # the object is of another type, which its reader reports
        other = next((each for each in place.words if each in holder), None)
        if other is not None:
            path = other if place.holder is None else f"{place.holder}.{other}"
            reason = f"stands beside {renamed.get(path, path)}; use one of the two"
            problems.append(Problem(str(word), value, reason))
            continue
        holder[place.words[0]] = value
        renamed[place.path] = str(word)
    return Canonical(fields, renamed)


def named_policy(definition: Mapping[str, object]) -> dict[str, str]:
    """Return the policy fields that a definition names, each with the path under which it does."""
    document, renamed = canonical(definition, [])
    policy = document.get("policy")
    if not isinstance(policy, Mapping):
        return {}
    paths = {word: f"policy.{word}" for word in policy if word in POLICY.words}
    return {POLICY.words[word].name: renamed.get(path, path) for word, path in paths.items()}


def _held(fields: dict[str, object], holder: str) -> dict[str, object] | None:
    """Return an object of a document as one that may be changed, or None if it is of another type."""
    value = fields.get(holder, {})
    if not isinstance(value, Mapping):
        return None
    fields[holder] = copy = dict(value)
    return copy


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
    row = (table if place.holder is None else _TABLES[place.holder]).words[place.words[0]]
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
