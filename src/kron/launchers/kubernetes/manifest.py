"""The Job of a run: its name, which a run has only once, and its document."""

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, ClassVar, NamedTuple

from kron.core.fields import FieldTable, ValueType, invalid_value, parse_text, row
from kron.core.job.decision import decide_at
from kron.core.plan.compiled import compiled_job, definitions_of
from kron.core.plan.record import JobRecord, RunKind, RunRecord
from kron.core.plan.report import Launch
from kron.core.time.instant import rfc3339
from kron.core.value_types import nullable
from kron.launchers.kubernetes.api import JOBS, Document
from kron.launchers.spec import TableSettings, launcher_table, settings_parser

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


class JobPlace(NamedTuple):
    """The namespace and the name of a Job."""

    namespace: str
    name: str


def _parse_object(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise invalid_value(value, "must be an object")
    return value


def _parse_dns_name(value: object) -> str:
    text = parse_text(value)
    if not text or not all(sign.isascii() and (sign.isalnum() or sign in "-.") for sign in text):
        raise invalid_value(value, "must be a name of Kubernetes: letters, digits, - and .")
    return text


OBJECT = ValueType(schema={"type": "object"}, parse=_parse_object)
NAME = ValueType(schema={"type": "string"}, parse=_parse_dns_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings(TableSettings):
    """Where Jobs are created, how their names start, from which template, and which object owns them."""

    kind: ClassVar[str] = "kubernetes"
    table: ClassVar[FieldTable]

    namespace: str = field(default="default", metadata=row(NAME, "the namespace of the Jobs"))
    name: str = field(default="kron", metadata=row(NAME, "how the names of the Jobs start"))
    template: Mapping[str, Any] = field(
        default_factory=dict, hash=False, metadata=row(OBJECT, "the Job: `metadata` and `spec`")
    )
    owner: Mapping[str, Any] | None = field(
        default=None,
        hash=False,
        metadata=row(nullable(OBJECT), "the owner reference of the Jobs", sparse=True),
    )


KubernetesSettings.table = launcher_table(KubernetesSettings, required=("template",))
settings_of = settings_parser(KubernetesSettings)


def job_name(prefix: str, run: RunRecord) -> str:
    """Return the name of the Job of one attempt: the same run has the same name for ever.

    Manual runs of one second differ in their keys only.
    """
    parts = [run.identity, rfc3339(run.nominal_time), run.kind, str(run.attempt)]
    if run.kind is not RunKind.PERIOD:
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
    _hand_over(spec, notes, labels)
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
    """Return the certificate of a period's decision; a manual run follows from none."""
    job, run = launch.job, launch.run
    if run.kind is not RunKind.PERIOD:
        return "{}"
    definition = (
        job.definition if run.epoch == job.epoch else definitions_of(job).get(run.epoch, job.definition)
    )
    compiled = compiled_job(definition, job.identity)
    decision = decide_at(compiled.for_job(job.identity), run.nominal_time)
    return json.dumps(decision.to_dict(), separators=(",", ":"), ensure_ascii=False)


def _hand_over(spec: Document, notes: Mapping[str, str], labels: Mapping[str, str]) -> None:
    """Give the pods the annotations, and every container the variables of its run."""
    pod = spec.setdefault("template", {})
    metadata = pod.setdefault("metadata", {})
    metadata["annotations"] = {**metadata.get("annotations", {}), **notes}
    metadata["labels"] = {**metadata.get("labels", {}), **labels}
    variables = [{"name": name, "value": notes[note]} for name, note in VARIABLES.items()]
    for kind in ("initContainers", "containers"):
        for container in pod.get("spec", {}).get(kind) or ():
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
