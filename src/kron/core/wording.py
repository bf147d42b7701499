"""The wording that all texts for people share: a count with its noun."""


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun, e.g. ``1 job``, ``1,200 jobs`` or ``2 entries``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
