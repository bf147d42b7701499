"""KronJob manifests as the jobs of a service, and such jobs as manifests."""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kron.cli.support.job_file import parse_documents, parse_jobs
from kron.cli.support.read import MAX_JOBS, read_text
from kron.cli.support.source import Source
from kron.core.errors import InputError, UnreadableFileError
from kron.core.job.job import Job
from kron.fronts.service.documents import Document

if TYPE_CHECKING:
    from kron.fronts.operator.dry_run import Manifest

_KRONJOB = re.compile(r"""^[\s"'{\[-]*kind["']?\s*:\s*["']?KronJob\b""", re.MULTILINE)
# The fields of a job that a KronJob does not have.
LEFT_OUT = ("description", "tags", "retention", "notify")


class NotKronJobError(InputError):
    """A schedule cannot be written as a KronJob."""

    code = "not_a_kronjob"


def load_definitions(file: str, *, may_be_empty: bool = False) -> list[Job]:
    """Return the jobs of a job file, or of the KronJobs in a file of manifests."""
    source = Source(name=file, text=read_text(file, MAX_JOBS), has_jobs=True)
    if _KRONJOB.search(source.text) is None:
        return parse_jobs(source).jobs(may_be_empty=may_be_empty)
    manifests = manifests_in(source)
    try:
        return [_job_of(*each) for each in manifests]
    except InputError as error:
        raise UnreadableFileError(file=file, reason=str(error)) from error


def manifests_in(source: Source) -> "list[Manifest]":
    """Return the KronJobs in a file of manifests; an error names the file."""
    from kron.fronts.operator.dry_run import read_manifests

    documents = parse_documents(source)
    try:
        return read_manifests(documents)
    except InputError as error:
        raise UnreadableFileError(file=source.name, reason=str(error)) from error


def _job_of(namespace: str, name: str, job: Job, template: Mapping[str, object]) -> Job:
    launcher = {"kind": "kubernetes", "namespace": namespace, "name": name, "template": template}
    return Job.from_dict({**job.to_dict(), "launcher": launcher})


def manifests_of(definitions: list[Document]) -> Iterator[Document]:
    """Yield schedules that start Jobs as KronJobs, or raise NotKronJobError."""
    from kron.fronts.operator.resource import manifest_of

    names: set[tuple[str, str]] = set()
    for definition in definitions:
        identity, launcher = str(definition["identity"]), definition.get("launcher")
        if not isinstance(launcher, dict) or launcher.get("kind") != "kubernetes":
            raise _refused(identity, "its launcher is not of the kind kubernetes")
        place = str(launcher["namespace"]), str(launcher["name"])
        if place in names:
            raise _refused(identity, f"another one has the name {'/'.join(place)} too: change launcher.name")
        names.add(place)
        yield manifest_of(
            Job.from_dict(definition), namespace=place[0], name=place[1], template=launcher["template"]
        )


def _refused(identity: str, reason: str) -> NotKronJobError:
    return NotKronJobError(f'"{identity}" cannot be a KronJob: {reason}', reason=reason)


def left_out_of(definition: Document) -> list[str]:
    """Return the fields of a schedule that its KronJob does not have."""
    return [name for name in LEFT_OUT if definition.get(name)]
