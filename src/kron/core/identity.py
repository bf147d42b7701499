"""Identities: the stable names jobs have, which seeds and hashes are made from."""

# Whatever a reader may take for the end of a line; an identity with one could make two jobs share a seed.
LINE_BREAKS = frozenset("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")


def identity_fault(value: object) -> str | None:
    """Return why a value cannot be an identity, or None where it can."""
    if not isinstance(value, str):
        return f"must be a text, got {type(value).__name__}"
    if not value.strip():
        return "must not be empty"
    if not LINE_BREAKS.isdisjoint(value):
        return "must not contain a line break; two jobs could share a seed"
    if "\0" in value:
        return "must not contain a NUL"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "must be valid Unicode"
    return None
