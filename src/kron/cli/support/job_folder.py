"""The job files of krond: files and folders, read together; a broken file stops no other."""

import os
import pwd
from collections.abc import Callable, Sequence
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import NamedTuple

from kron.core.errors import InputError, KronError
from kron.core.job.job import Job
from kron.fronts.daemon.job_set import LoadedJobs
from kron.launchers.process.supervisor.trust import untrusted

# The suffixes of job files. Files with other suffixes in a folder are ignored.
SUFFIXES = (".yaml", ".yml", ".json", ".krontab")
# The folder of the crontabs of users, below /var/spool/cron.
SPOOL_FOLDER = "crontabs"
NO_FILE = "is a pipe, a socket or a device, not a file"
MOVED = "has jobs whose identity comes from the file's name: renaming it would change their decisions"


def files_in(paths: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Return the job files of files and folders, and the problems of paths that cannot be read."""
    files: dict[str, None] = {}
    problems: dict[str, list[str]] = {}
    for path in map(os.path.abspath, paths):
        try:
            if not os.path.isdir(path):
                os.stat(path)
                files[path] = None
                continue
            names = sorted(os.listdir(path))
        except OSError as error:
            problems[path] = [f"{path}: {error.strerror or error}"]
            continue
        for name in names:
            file = os.path.join(path, name)
            if Path(name).suffix not in SUFFIXES or name.startswith("."):
                continue
            if _is_special(file):
                problems[file] = [f"{file}: {NO_FILE}"]
            else:
                files[file] = None
    return list(files), problems


def _is_special(file: str) -> bool:
    """Return whether a path is a pipe, a socket or a device, whose reading may never end."""
    try:
        mode = os.stat(file).st_mode
    except OSError:
        # Its reading says what is wrong with it.
        return False
    return not S_ISREG(mode) and not S_ISDIR(mode)


def load(paths: Sequence[str], crontabs: Sequence[str] = ()) -> LoadedJobs:
    """Return the jobs of all files, and the problems of those that cannot be used, each with its line."""
    files, problems = files_in(paths)
    jobs: dict[str, Sequence[Job]] = {}
    owners: dict[str, str] = {}
    notes: list[str] = []
    lines: dict[str, Callable[[int], int]] = {}
    readers: dict[str, Callable[[str], FileJobs]] = {
        **dict.fromkeys(files, load_job_file),
        **dict.fromkeys(map(os.path.abspath, crontabs), load_crontab),
    }
    for file, reader in readers.items():
        try:
            read, is_named, line_of = reader(file)
            for number, job in enumerate(read):
                if other := owners.get(job.identity):
                    raise InputError(
                        f'{file}:{line_of(number)}: job "{job.identity}" is already defined in {other}'
                    )
        except KronError as error:
            problems[file] = error.lines()
            continue
        except OSError as error:
            problems[file] = [f"{file}: {error.strerror or error}"]
            continue
        owners |= dict.fromkeys((job.identity for job in read), file)
        jobs[file], lines[file] = read, line_of
        if is_named:
            notes.append(f"{Path(file).name}: {MOVED}")
    return LoadedJobs(jobs=jobs, lines=lines, problems=problems, notes=notes)


class FileJobs(NamedTuple):
    """The jobs of a file, whether an identity comes from the file's name, and the line of the n-th job."""

    jobs: list[Job]
    is_named: bool
    line_of: Callable[[int], int]


def _check_trust(file: str, owner: int = 0) -> None:
    if fault := untrusted(file, owner):
        raise InputError(f"{file}: {fault}")


def load_job_file(file: str) -> FileJobs:
    """Return the jobs of a job file."""
    # The daemon itself only compares files, and does without a parser.
    from kron.cli.support.job_file import parse_jobs
    from kron.cli.support.read import MAX_JOBS, read_text
    from kron.cli.support.source import Source
    from kron.core.job.file import definitions_in

    _check_trust(file)
    source = Source(name=file, text=read_text(file, MAX_JOBS), has_jobs=True)
    parsed = parse_jobs(source)

    def line_of(number: int) -> int:
        paths = [path for path, _ in definitions_in(parsed.content)]
        return parsed.line_of(paths[number])

    return FileJobs(parsed.jobs(may_be_empty=True), bool(parsed.named), line_of)


def owner_of_spool(file: str) -> pwd.struct_passwd | None:
    """Return the user of a crontab in cron's spool folder, where files are named after their users."""
    try:
        return pwd.getpwnam(Path(file).name) if Path(file).parent.name == SPOOL_FOLDER else None
    except KeyError:
        return None


def load_crontab(file: str) -> FileJobs:
    """Return the jobs of a crontab as cron runs them; their identities are made of the file's name.

    The lines of a system crontab name their users. Root runs a crontab of cron's spool folder as its user.
    """
    from kron.cli.support.read import MAX_CRONTAB, has_user_column, read_text
    from kron.clocks.host_zone import host_timezone
    from kron.core.job.from_crontab import CrontabSource, jobs_from_crontab

    owner = owner_of_spool(file) if os.geteuid() == 0 else None
    _check_trust(file, 0 if owner is None else owner.pw_uid)
    source = CrontabSource(
        stem=Path(file).stem,
        has_user=has_user_column(file),
        user=None if owner is None else owner.pw_name,
        timezone=host_timezone(),
    )
    lines = jobs_from_crontab(read_text(file, MAX_CRONTAB), source)
    if wrong := [
        f"{file}:{line.line}: {line.problem}" for line in lines if line.problem and not line.harmless
    ]:
        raise InputError("\n".join(wrong))
    used = [line for line in lines if line.definition is not None]
    jobs = [Job.from_dict(line.definition) for line in used]
    return FileJobs(jobs, bool(jobs), lambda number: used[number].line)


def stamp(paths: Sequence[str]) -> object:
    """Return a value that differs when a job file was added, removed or written, or may be followed now."""
    files, problems = files_in(paths)
    stamps = []
    folders: dict[str, str | None] = {}
    for file in files:
        try:
            stat = os.stat(file)
            # The time of the inode changes with the permissions, too.
            stamps.append((file, stat.st_ctime_ns, stat.st_mtime_ns, stat.st_size, stat.st_ino))
            folder = os.path.dirname(os.path.realpath(file))
            if folder not in folders:
                folders[folder] = untrusted(folder)
        except OSError:
            stamps.append((file, 0, 0, 0, 0))
    return stamps, folders, sorted(problems)
