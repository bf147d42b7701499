"""JSON of requests, with a limit for its values: they cost processor time and memory, not its length."""

import json

from kron.core.errors import InputError

# Commas and opening brackets of one document, and of a whole set of definitions. The parser keeps every other
# thread waiting, some 0.1 s for a million of them, and the garbage collector several times as long.
MAX_VALUES, MAX_WHOLE_VALUES = 200_000, 400_000


class TooManyValuesError(InputError):
    """A JSON document has more values than are read."""

    code = "too_many_values"

    def __init__(self, *, count: int, most: int) -> None:
        reason = f"has {count:,} commas and opening brackets; at most {most:,} are read: send less at once"
        super().__init__(f"JSON {reason}", option="body", reason=reason)


def read_json(text: bytes | str, most: int = MAX_VALUES) -> object:
    """Return a document; raise TooManyValuesError, or ValueError or RecursionError if it is no JSON."""
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    count = sum(map(text.count, ",[{"))
    if count > most:
        raise TooManyValuesError(count=count, most=most)
    document: object = json.loads(text)
    return document
