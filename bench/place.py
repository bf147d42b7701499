"""Stores for measurements: new, empty, and with default durability."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

MEMORY, SQLITE, POSTGRES = "memory", "sqlite", "postgres"
PLACES = (MEMORY, SQLITE, POSTGRES)
# Default durability: a commit is on disk.
SETTINGS = "fsync = on\nsynchronous_commit = on\n"


@contextmanager
def url_of(place: str) -> Iterator[str]:
    """Yield the URL of an empty store; a URL is returned unchanged."""
    if "://" in place:
        yield place
    elif place == MEMORY:
        yield "memory://"
    elif place == SQLITE:
        with TemporaryDirectory() as folder:
            yield f"sqlite:///{Path(folder, 'kron.db')}"
    else:
        with postgres_server() as fresh:
            yield fresh()


@contextmanager
def postgres_server() -> Iterator[Callable[[], str]]:
    """Run one server for many measurements and yield a function that creates empty stores on it.

    Without a server that function raises, so a measurement that needs it loses only its row.
    """
    try:
        from tests.postgres import running
    except ImportError as error:
        yield partial(_refuse, error)
        return
    with TemporaryDirectory() as folder, running(Path(folder), SETTINGS) as server:
        yield server.fresh


def _refuse(error: ImportError) -> str:
    raise error
