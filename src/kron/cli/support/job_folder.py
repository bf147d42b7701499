"""The job files of krond: files and folders, read together; a broken file stops no other."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from kron.core.errors import InputError, KronError
from kron.core.job.job import Job
from kron.fronts.daemon.job_set import LoadedJobs
from kron.launchers.process.host import untrusted

# The suffixes of job files. Files with other suffixes in a folder are ignored.
SUFFIXES = (".yaml", ".yml", ".json", ".krontab")
MOVED = "has jobs whose identity is made of the file's name: to rename it would change their decisions"


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
            if Path(name).suffix in SUFFIXES and not name.startswith("."):
                files[os.path.join(path, name)] = None
    return list(files), problems


def load(paths: Sequence[str], crontabs: Sequence[str] = ()) -> LoadedJobs:
    """Return the jobs of all files, and the problems of those that cannot be used, each with its line."""
    files, problems = files_in(paths)
    jobs: dict[str, Sequence[Job]] = {}
    owners: dict[str, str] = {}
    notes: list[str] = []
    readers: dict[str, Callable[[str], tuple[list[Job], bool]]] = {
        **dict.fromkeys(files, load_job_file),
        **dict.fromkeys(map(os.path.abspath, crontabs), load_crontab),
    }
    for file, reader in readers.items():
        try:
            if fault := untrusted(os.path.dirname(file)) or untrusted(file):
                raise InputError(f"{file}: {fault}")
            read, is_named = reader(file)
            for job in read:
                if other := owners.get(job.identity):
                    raise InputError(f'{file}: job "{job.identity}" is in {other} already')
        except KronError as error:
            problems[file] = error.lines()
            continue
        except OSError as error:
            problems[file] = [f"{file}: {error.strerror or error}"]
            continue
        owners |= dict.fromkeys((job.identity for job in read), file)
        jobs[file] = read
        if is_named:
            notes.append(f"{Path(file).name}: {MOVED}")
    return LoadedJobs(jobs=jobs, problems=problems, notes=notes)


def load_job_file(file: str) -> tuple[list[Job], bool]:
    """Return the jobs of a job file, and whether the identity of one is made of the file's name."""
    # The daemon itself only compares files, and does without a parser.
    from kron.cli.support.job_file import parse_jobs
    from kron.cli.support.read import MAX_JOBS, read_text
    from kron.cli.support.source import Source

    source = Source(name=file, text=read_text(file, MAX_JOBS), has_jobs=True)
    parsed = parse_jobs(source)
    return parsed.jobs(may_be_empty=True), bool(parsed.named)


def load_crontab(file: str) -> tuple[list[Job], bool]:
    """Return the jobs of a crontab as cron runs them; their identities are made of the file's name.

    The lines of a system crontab name their users.
    """
    from kron.cli.support.read import MAX_CRONTAB, has_user_column, read_text
    from kron.clocks.host_zone import host_timezone
    from kron.core.job.from_crontab import CrontabSource, jobs_from_crontab

    source = CrontabSource(stem=Path(file).stem, has_user=has_user_column(file), timezone=host_timezone())
    lines = jobs_from_crontab(read_text(file, MAX_CRONTAB), source)
    if wrong := [
        f"{file}:{line.line}: {line.problem}" for line in lines if line.problem and not line.harmless
    ]:
        raise InputError("\n".join(wrong))
    jobs = [Job.from_dict(line.definition) for line in lines if line.definition is not None]
    return jobs, bool(jobs)


def stamp(paths: Sequence[str]) -> object:
    """Return a value that differs when a job file was added, removed or written."""
    files, problems = files_in(paths)
    stamps = []
    for file in files:
        try:
            stat = os.stat(file)
            stamps.append((file, stat.st_mtime_ns, stat.st_size, stat.st_ino))
        except OSError:
            stamps.append((file, 0, 0, 0))
    return stamps, sorted(problems)
