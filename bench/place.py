"""Where the engine remembers: stores that are new, empty and as durable as they are shipped."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

MEMORY, SQLITE, POSTGRES = "memory", "sqlite", "postgres"
PLACES = (MEMORY, SQLITE, POSTGRES)
# A server as it comes: a commit counts when it is on disk.
SETTINGS = "fsync = on\nsynchronous_commit = on\n"


@contextmanager
def url_of(place: str) -> Iterator[str]:
    """Give the URL of an empty store; what is a URL already stays one."""
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
    """Run one server for many measurements and give what makes URLs of empty stores on it.

    Where there is none, that raises for whoever asks: a measurement without it costs its own row only.
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
