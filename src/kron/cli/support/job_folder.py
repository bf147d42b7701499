"""The job files of krond: files and folders, read together; a broken file stops no other."""

import os
from collections.abc import Sequence
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


def load(paths: Sequence[str]) -> LoadedJobs:
    """Return the jobs of all files, and the problems of those that cannot be used, each with its line."""
    # The daemon itself only compares files, and does without a parser.
    from kron.cli.support.job_file import load_jobs

    files, problems = files_in(paths)
    jobs: dict[str, Sequence[Job]] = {}
    owners: dict[str, str] = {}
    for file in files:
        try:
            if fault := untrusted(os.path.dirname(file)) or untrusted(file):
                raise InputError(f"{file}: {fault}")
            read = load_jobs(file, may_be_empty=True)
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
    notes = [f"{Path(file).name}: {MOVED}" for file, read in jobs.items() if _is_named_by(file, read)]
    return LoadedJobs(jobs=jobs, problems=problems, notes=notes)


def _is_named_by(file: str, jobs: Sequence[Job]) -> bool:
    prefix = f"{Path(file).stem}/"
    return any(job.identity.startswith(prefix) for job in jobs)


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
