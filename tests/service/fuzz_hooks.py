"""What schemathesis is told about this API: how lines of JSON are sent."""

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines_of_json(_context: object, value: object) -> bytes:
    """Send what was generated as it is."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
