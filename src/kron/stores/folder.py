"""Workflows as files: `<folder>/<workflow>/<version>.json`. A published version never changes."""

import asyncio
import fcntl
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TypeVar

from kron.core.errors import StoreError
from kron.core.value_types import MAX_VERSION
from kron.core.workflow import NAME, WorkflowRecord, WorkflowVersion

T = TypeVar("T")
# No larger file is read: a record is a DAG of at most 1 MiB, escaped as text, and a few fields.
MAX_FILE = 4 << 20
# Beside the workflows; no workflow has this name.
LOCK = ".lock"


class FolderWorkflows:
    """Workflow versions in a folder. Symbolic links are not followed, and no name leads out of it."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder).absolute()

    async def put(self, record: WorkflowRecord) -> WorkflowRecord:
        """Store a version unless a published one exists; return the stored one."""
        return await self._do(lambda: self._put(record))

    def _put(self, record: WorkflowRecord) -> WorkflowRecord:
        folder = self._folder_of(record.workflow_id)
        folder.mkdir(parents=True, exist_ok=True)
        _check_real(folder)
        with _locked(self._folder):
            stored = self._get(record.workflow_id, record.version)
            if stored is None or stored.is_draft:
                _write(folder / f"{record.version}.json", record)
                stored = self._get(record.workflow_id, record.version)
        assert stored is not None, "written above"
        return stored

    async def get(self, workflow_id: str, version: int) -> WorkflowRecord | None:
        """Return a version, or None."""
        return await self._do(lambda: self._get(workflow_id, version))

    def _get(self, workflow_id: str, version: int) -> WorkflowRecord | None:
        if not NAME.fullmatch(workflow_id) or not 0 <= version <= MAX_VERSION:
            return None
        folder = self._folder_of(workflow_id)
        try:
            _check_real(folder)
            number = os.open(folder / f"{version}.json", os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        with open(number, encoding="utf-8") as file:
            return _record_of(file.read(MAX_FILE + 1), folder.name, version)

    async def versions(self, workflow_id: str, *, limit: int = 100) -> list[WorkflowVersion]:
        """Return the versions of a workflow, newest first."""
        return await self._do(lambda: self._versions(workflow_id, limit))

    def _versions(self, workflow_id: str, limit: int) -> list[WorkflowVersion]:
        if not NAME.fullmatch(workflow_id) or not self._folder_of(workflow_id).exists():
            return []
        names = (path.stem for path in self._folder_of(workflow_id).glob("*.json"))
        numbers = sorted((int(name) for name in names if name.isascii() and name.isdigit()), reverse=True)
        records = (self._get(workflow_id, number) for number in numbers[:limit])
        return [WorkflowVersion(each.version, each.user_id, each.created_at) for each in records if each]

    async def count_versions(self, prefix: str, *, most: int) -> int:
        """Count the versions of the workflows whose names start with a prefix, up to `most`."""

        def count() -> int:
            folders = self._folder.iterdir() if self._folder.exists() else ()
            named = (folder for folder in folders if folder.name.startswith(prefix))
            return sum(1 for folder in named for _ in islice(folder.glob("*.json"), most))

        return min(most, await self._do(count))

    async def names(
        self, *, users: Sequence[str] | None = None, after: str = "", limit: int = 100
    ) -> list[str]:
        """Return the workflows by name, from a name on."""
        return await self._do(lambda: self._names(users, after, limit))

    def _names(self, users: Sequence[str] | None, after: str, limit: int) -> list[str]:
        if not self._folder.exists():
            return []
        names = sorted(path.name for path in self._folder.iterdir() if path.name > after)
        known = (name for name in names if NAME.fullmatch(name) and self._is_owned(name, users))
        return list(islice(known, limit))

    def _is_owned(self, workflow_id: str, users: Sequence[str] | None) -> bool:
        versions = self._versions(workflow_id, MAX_VERSION)
        return any(users is None or version.user_id in users for version in versions)

    async def close(self) -> None:
        """Do nothing: no file is kept open."""

    def _folder_of(self, workflow_id: str) -> Path:
        assert NAME.fullmatch(workflow_id), "callers check names"
        return self._folder / workflow_id

    async def _do(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except OSError as cause:
            text = f"{cause.strerror}: {cause.filename}"
            raise StoreError(f"The workflows cannot be used: {text}", cause=text) from cause


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, so that no other process publishes a draft that is being replaced."""
    number = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


def _write(path: Path, record: WorkflowRecord) -> None:
    """Write a version; it gets its name at the end, so that no crash leaves a partial one under it."""
    number, name = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        with open(number, "w", encoding="utf-8") as file:
            json.dump({**record._asdict(), "dag": json.loads(record.dag)}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _check_real(folder: Path) -> None:
    """Refuse a workflow's folder that is a symbolic link: it may lead anywhere."""
    if folder.is_symlink():
        raise NotADirectoryError(20, "is a symbolic link, which is not followed", str(folder))


def _record_of(text: str, workflow_id: str, version: int) -> WorkflowRecord:
    try:
        document = json.loads(text)
        record = WorkflowRecord(
            workflow_id,
            version,
            json.dumps(document["dag"], separators=(",", ":"), allow_nan=False),
            str(document["user_id"]),
            int(document["created_at"]),
        )
    except (ValueError, RecursionError, KeyError, TypeError) as cause:
        message = f'Version {version} of the workflow "{workflow_id}" cannot be read from its file'
        raise StoreError(message, workflow_id=workflow_id, version=version) from cause
    return record
