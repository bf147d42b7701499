"""The Job of a run: its name, which a run has only once, and its document."""

import json
from collections.abc import Mapping
from copy import deepcopy
from hashlib import sha256
from math import ceil
from typing import NamedTuple

from kron.core.errors import InputError
from kron.core.job.decision import decide_at
from kron.core.plan.compiled import compiled_job, definitions_of
from kron.core.plan.record import JobRecord, RunKind, RunRecord, key_of
from kron.core.plan.report import Launch
from kron.core.time.instant import rfc3339
from kron.launchers.kubernetes.api import JOBS, Document
from kron.launchers.kubernetes.spec import containers_in, settings_of

# The longest name of a Job, whose pods carry it as a label; and the characters of the hash at its end.
MAX_NAME, HASH = 63, 16
# The label of all Jobs that Kron creates, by which they are listed and watched.
MANAGED_BY, KRON = "app.kubernetes.io/managed-by", "kron"
SELECTOR = f"{MANAGED_BY}={KRON}"
LABEL_KRONJOB, LABEL_PERIOD, LABEL_KIND = "kron.io/name", "kron.io/period", "kron.io/kind"
KEY, ATTEMPT, IDENTITY = "kron.io/idempotency-key", "kron.io/attempt", "kron.io/identity"
PERIOD_ID, TOKEN, DECISION = "kron.io/period-id", "kron.io/fencing-token", "kron.io/decision"
CHOSEN, START, END = "kron.io/chosen-time", "kron.io/data-interval-start", "kron.io/data-interval-end"
# The variables of every container, by the annotation that has the same value.
VARIABLES = {
    "KRON_IDENTITY": IDENTITY,
    "KRON_PERIOD_ID": PERIOD_ID,
    "KRON_IDEMPOTENCY_KEY": KEY,
    "KRON_ATTEMPT": ATTEMPT,
    "KRON_FENCING_TOKEN": TOKEN,
    "KRON_DATA_INTERVAL_START": START,
    "KRON_DATA_INTERVAL_END": END,
}
# How much longer than its run timeout the cluster lets a Job run.
DEADLINE_GRACE_S = 60
# The variable with the payload of a task or a workflow, and its largest size; Linux allows 128 KiB.
PAYLOAD, MAX_PAYLOAD = "KRON_PAYLOAD", 100_000


class PayloadTooLargeError(InputError):
    """The payload of a task or a workflow does not fit into a variable of a container."""

    code = "payload_too_large"


class JobPlace(NamedTuple):
    """The namespace and the name of a Job."""

    namespace: str
    name: str


def job_name(prefix: str, run: RunRecord) -> str:
    """Return the name of the Job of one attempt: the same run has the same name for ever.

    Manual runs of one second, and tasks of several runs of a DAG, differ in their keys only.
    """
    parts = [run.identity, rfc3339(run.nominal_time), run.kind, str(run.attempt)]
    if run.kind is not RunKind.PERIOD or run.key != key_of(run.identity, run.nominal_time):
        parts.append(run.key)
    digest = sha256("\n".join(parts).encode()).hexdigest()[:HASH]
    start = prefix.lower().replace(".", "-")[: MAX_NAME - HASH - 1].strip("-")
    return f"{start}-{digest}" if start else f"kron-{digest}"


def place_of(job: JobRecord, run: RunRecord) -> JobPlace:
    """Return where the Job of a run is."""
    settings = settings_of(job.launcher)
    return JobPlace(settings.namespace, job_name(settings.name, run))


def job_document(launch: Launch) -> Document:
    """Return the Job of a launch."""
    settings, run = settings_of(launch.job.launcher), launch.run
    template = deepcopy(dict(settings.template))
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    notes = _annotations(launch)
    label = settings.name[:MAX_NAME].strip("-.")
    labels = {
        MANAGED_BY: KRON,
        LABEL_KRONJOB: label,
        LABEL_PERIOD: rfc3339(run.nominal_time).replace("-", "").replace(":", ""),
        LABEL_KIND: str(run.kind),
    }
    _hand_over(spec, notes, labels, _variables(launch, notes))
    if run.due_at is not None and run.started_at is not None:
        # Kron ends a run at its timeout; if it dies in that moment, the cluster does so a little later.
        spec.setdefault(
            "activeDeadlineSeconds", ceil((run.due_at - run.started_at) / 1000) + DEADLINE_GRACE_S
        )
    document: Document = {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "namespace": settings.namespace,
            "name": job_name(settings.name, run),
            "labels": {**metadata.get("labels", {}), **labels},
            "annotations": {**metadata.get("annotations", {}), **notes, DECISION: _decision(launch)},
        },
        "spec": spec,
    }
    if settings.owner is not None:
        document["metadata"]["ownerReferences"] = [dict(settings.owner)]
    return document


def _annotations(launch: Launch) -> dict[str, str]:
    run, interval = launch.run, launch.data_interval
    return {
        IDENTITY: run.identity,
        PERIOD_ID: rfc3339(run.nominal_time),
        CHOSEN: rfc3339(run.fire_time // 1000),
        KEY: run.key,
        ATTEMPT: str(run.attempt),
        TOKEN: str(run.token),
        START: rfc3339(interval.start),
        END: rfc3339(interval.end),
    }


def _decision(launch: Launch) -> str:
    """Return the certificate of a period's decision; a manual run and a task of a DAG follow from none."""
    job, run = launch.job, launch.run
    if run.kind is not RunKind.PERIOD or launch.payload is not None:
        return "{}"
    definition = (
        job.definition if run.epoch == job.epoch else definitions_of(job).get(run.epoch, job.definition)
    )
    compiled = compiled_job(definition, job.identity)
    decision = decide_at(compiled.for_job(job.identity), run.nominal_time)
    return json.dumps(decision.to_dict(), separators=(",", ":"), ensure_ascii=False)


def _variables(launch: Launch, notes: Mapping[str, str]) -> list[Document]:
    """Return the variables of every container; a task and a workflow also have their facts and payload."""
    variables = {name: notes[note] for name, note in VARIABLES.items()}
    payload = launch.payload
    if payload is not None:
        if len(payload.document.encode()) > MAX_PAYLOAD:
            raise PayloadTooLargeError(
                f"The payload has more than {MAX_PAYLOAD:,} bytes",
                reason="it does not fit into an environment variable",
            )
        variables |= {f"KRON_{name.upper()}": value for name, value in payload.facts.items()}
        variables[PAYLOAD] = payload.document
    return [{"name": name, "value": value} for name, value in variables.items()]


def _hand_over(
    spec: Document, notes: Mapping[str, str], labels: Mapping[str, str], variables: list[Document]
) -> None:
    """Give the pods the annotations, and every container the variables of its run."""
    pod = spec.setdefault("template", {})
    metadata = pod.setdefault("metadata", {})
    metadata["annotations"] = {**metadata.get("annotations", {}), **notes}
    metadata["labels"] = {**metadata.get("labels", {}), **labels}
    for container in containers_in(pod):
        given = {each.get("name") for each in container.get("env") or ()}
        added = [each for each in variables if each["name"] not in given]
        container["env"] = [*(container.get("env") or ()), *added]


class JobEnd(NamedTuple):
    """How a Job ended: whether it succeeded, and its message if not."""

    succeeded: bool
    message: str = ""


def end_of(document: Document) -> JobEnd | None:
    """Return how a Job ended, or None while it runs."""
    for condition in (document.get("status") or {}).get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed"):
            words = [condition.get("reason"), condition.get("message")]
            return JobEnd(condition["type"] == "Complete", ": ".join(word for word in words if word))
    return None


def key_in(document: Document) -> str | None:
    """Return the idempotency key of the run that created a Job."""
    key: str | None = (document["metadata"].get("annotations") or {}).get(KEY)
    return key


def ttl_of(job: JobRecord) -> int | None:
    """Return after how many seconds a Job that ended may be removed, None if only Kron removes it."""
    ttl = (settings_of(job.launcher).template.get("spec") or {}).get("ttlSecondsAfterFinished")
    return ttl if isinstance(ttl, int) else None
