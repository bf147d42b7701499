"""Identities: the stable names of jobs, from which seeds and hashes are derived."""

# Every line break known to Unicode: seeds join parts by LF, so a break could make two jobs share a seed.
LINE_BREAKS = frozenset("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")


def identity_fault(value: object) -> str | None:
    """Return why a value is not a valid identity, or None."""
    if not isinstance(value, str):
        return f"must be a string, got {type(value).__name__}"
    if not value.strip():
        return "must not be empty"
    if not LINE_BREAKS.isdisjoint(value):
        return "must not contain a line break; two jobs could share a seed"
    if "\0" in value:
        return "must not contain a NUL character"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "must be valid Unicode"
    return None
