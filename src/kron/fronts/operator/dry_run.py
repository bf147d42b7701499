"""What an operator would do with the KronJobs of a file: which Job at which time, without a cluster."""

from collections.abc import Iterable, Iterator, Mapping
from heapq import merge
from itertools import islice
from typing import NamedTuple

from kron.core.errors import InputError
from kron.core.job.decision import upcoming_from
from kron.core.job.job import Job
from kron.core.job.outcome import Reason
from kron.core.plan.record import RunRecord, RunStatus, key_of
from kron.core.time.instant import EpochSeconds, rfc3339
from kron.fronts.operator.resource import calendars_of, definition_of, kronjob_of
from kron.launchers.kubernetes.api import KRONCALENDARS, KRONJOBS, Document
from kron.launchers.kubernetes.manifest import job_name


class ManifestError(InputError):
    """A file has no KronJob, or a document that is none."""

    code = "invalid_manifest"


class PlannedJob(NamedTuple):
    """A Job that would be created: when, its name, and the period it is for."""

    chosen_time: EpochSeconds
    nominal_time: EpochSeconds
    namespace: str
    kronjob: str
    job: str

    def to_dict(self) -> dict[str, str]:
        """Return plain data."""
        return {
            "chosen_time": rfc3339(self.chosen_time),
            "nominal_time": rfc3339(self.nominal_time),
            "namespace": self.namespace,
            "kronjob": self.kronjob,
            "job": self.job,
        }


class Manifest(NamedTuple):
    """A KronJob of a file as a job, with its place and the template of its Jobs."""

    namespace: str
    name: str
    job: Job
    template: Mapping[str, object]


def read_manifests(documents: Iterable[object]) -> list[Manifest]:
    """Return the KronJobs among the documents of a file; KronCalendars of it are known to them."""
    objects: list[Document] = []
    for each in documents:
        if not isinstance(each, Mapping):
            continue
        listed = each.get("items") if each.get("kind") == "List" else [each]
        objects += [dict(item) for item in listed or () if isinstance(item, Mapping)]
    calendars = calendars_of(each for each in objects if each.get("kind") == KRONCALENDARS.kind)
    manifests = []
    for each in objects:
        if each.get("kind") != KRONJOBS.kind:
            continue
        if not isinstance(each.get("metadata"), Mapping) or "name" not in each["metadata"]:
            raise ManifestError("a KronJob has no metadata.name", reason="metadata.name is missing")
        kronjob = kronjob_of(each)
        job = definition_of(kronjob, calendars.get(kronjob.place.namespace, {})).job
        manifests.append(Manifest(*kronjob.place, job, kronjob.spec.get("jobTemplate") or {}))
    if not manifests:
        raise ManifestError("there is no KronJob in it", reason="no document of the kind KronJob")
    return manifests


def planned_jobs(manifests: Iterable[Manifest], since: EpochSeconds, count: int) -> list[PlannedJob]:
    """Return the first Jobs that are created from an instant on, unless an earlier one is still active."""
    return list(islice(merge(*(_of(each, since) for each in manifests)), count))


def _of(manifest: Manifest, since: EpochSeconds) -> Iterator[PlannedJob]:
    job = manifest.job
    for decision in () if job.policy.suspend else upcoming_from(job, since):
        assert decision.chosen_time is not None, "unschedulable periods are not yielded"
        time, start = decision.nominal_time, decision.chosen_time
        key = key_of(job.identity, time)
        run = RunRecord(key, job.identity, time, 1000 * start, RunStatus.STARTED, Reason.DUE, 0, 1, attempt=1)
        yield PlannedJob(start, time, manifest.namespace, manifest.name, job_name(manifest.name, run))
