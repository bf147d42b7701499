"""The extras of the distribution: a command whose packages are missing names the one to install."""

from collections.abc import Iterator
from contextlib import contextmanager

from kron.core.errors import InputError


class MissingExtraError(InputError):
    """A command needs packages of an extra that is not installed."""

    code = "missing_extra"

    def __init__(self, *, extra: str, module: str | None) -> None:
        super().__init__(
            f'The "{extra}" extra is not installed (there is no module "{module}"): '
            f"pip install 'kron-engine[{extra}]' (from a checkout: pip install '.[{extra}]')",
            extra=extra,
            module=module,
        )


@contextmanager
def importing(extra: str) -> Iterator[None]:
    """Report a missing package of another project as an extra to install."""
    try:
        yield
    except ModuleNotFoundError as cause:
        if (cause.name or "").partition(".")[0] == "kron":
            raise
        raise MissingExtraError(extra=extra, module=cause.name) from cause
