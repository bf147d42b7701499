"""What schemathesis is told about this API: how lines of JSON are sent, and what a deletion leaves."""

from typing import Any

import schemathesis
from schemathesis.specs.openapi.checks import use_after_free

# The records of a schedule's periods stay when it is deleted.
HISTORY = ("/runs", "/why")


@schemathesis.serializer("application/x-ndjson")
def lines_of_json(_context: object, value: object) -> bytes:
    """Send what was generated as it is."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


@schemathesis.check
def gone_after_delete(
    context: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case[Any]
) -> bool | None:
    """Refuse an answer about what was deleted, unless it is history."""
    return None if case.operation.path.endswith(HISTORY) else use_after_free(context, response, case)
