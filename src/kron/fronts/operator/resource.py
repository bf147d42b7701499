"""KronJobs as definitions: what a document of the cluster says in the words of every other front."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kron.app.catalog import JobDefinition
from kron.core.job.job import Job, check_has_times
from kron.fronts.operator.crd import HISTORY, NEVER, camel, words_of
from kron.launchers.kubernetes.api import KRONJOBS, Document

LAUNCHER_KIND = "kubernetes"
# The objects of a definition whose fields have words of their own.
NESTED = ("window", "seed", "policy")
# What people write on a KronJob: a manual run with any new text, and a pause with its reason.
RUN_NOW, PAUSED = "kron.io/run-now", "kron.io/paused"


class ObjectName(NamedTuple):
    """The namespace and the name of an object."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class KronJob(NamedTuple):
    """One KronJob as the API server has it."""

    place: ObjectName
    uid: str
    version: str
    generation: int
    spec: Mapping[str, Any]
    status: Mapping[str, Any]
    annotations: Mapping[str, str]

    @property
    def identity(self) -> str:
        """Return the name that seeds the decisions: once recorded, always the same."""
        return str(self.status.get("identity") or self.spec.get("identity") or self.place)

    @property
    def state(self) -> str | None:
        """Return the operator's record of it, None before the first."""
        return self.status.get("state")

    def history_limit(self, *, failed: bool) -> int:
        """Return how many Jobs that ended are kept."""
        name = tuple(HISTORY)[failed]
        return int(self.spec.get(name, HISTORY[name]))


def kronjob_of(document: Document) -> KronJob:
    """Return a KronJob from its document."""
    metadata = document["metadata"]
    return KronJob(
        ObjectName(metadata.get("namespace", "default"), metadata["name"]),
        metadata.get("uid", ""),
        str(metadata.get("resourceVersion", "")),
        int(metadata.get("generation", 0)),
        document.get("spec") or {},
        document.get("status") or {},
        metadata.get("annotations") or {},
    )


def definition_of(kronjob: KronJob, calendars: Mapping[str, object]) -> JobDefinition:
    """Return the definition of a KronJob, or raise InvalidJobError; `calendars` are its namespace's."""
    job = Job.from_dict(document_of(kronjob, calendars))
    check_has_times(job)
    return JobDefinition(job, launcher_of(kronjob), LAUNCHER_KIND)


def document_of(kronjob: KronJob, calendars: Mapping[str, object]) -> dict[str, object]:
    """Return the definition as plain data, in the words of job files."""
    spec = dict(kronjob.spec)
    for name in ("jobTemplate", *HISTORY):
        spec.pop(name, None)
    document = _renamed(spec, words_of(None))
    for name in NESTED:
        if isinstance(document.get(name), Mapping):
            document[name] = _renamed(document[name], words_of(name))
    policy = document.get("policy")
    if isinstance(policy, dict) and policy.get("deadline") == NEVER:
        policy["deadline"] = None
    own = document.pop("calendars", None) or {}
    if calendars or own:
        document["calendars"] = {**calendars, **own}
    return {**document, "identity": kronjob.identity}


def _renamed(fields: Mapping[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    return {words.get(name, name): value for name, value in fields.items()}


def launcher_of(kronjob: KronJob) -> str:
    """Return the launcher's settings: where its Jobs are created, from which template, and who owns them."""
    owner = {
        "apiVersion": KRONJOBS.api_version,
        "kind": KRONJOBS.kind,
        "name": kronjob.place.name,
        "uid": kronjob.uid,
        "controller": True,
    }
    settings = {
        "kind": LAUNCHER_KIND,
        "namespace": kronjob.place.namespace,
        "name": kronjob.place.name,
        "template": kronjob.spec.get("jobTemplate") or {},
        "owner": owner,
    }
    return json.dumps(settings, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def calendars_of(documents: Iterable[Document]) -> dict[str, dict[str, object]]:
    """Return the days of KronCalendars by namespace and name."""
    calendars: dict[str, dict[str, object]] = {}
    for document in documents:
        metadata = document["metadata"]
        days = (document.get("spec") or {}).get("days") or []
        calendars.setdefault(metadata.get("namespace", "default"), {})[metadata["name"]] = days
    return calendars


def manifest_of(job: Job, *, namespace: str, name: str, template: Mapping[str, object]) -> Document:
    """Return a job as a KronJob: the fields that differ from their defaults, in the words of Kubernetes."""
    bare = Job.from_dict(
        {"identity": job.identity, "schedule": job.schedule.text, "timezone": "UTC"}
    ).to_dict()
    known = {word: spelled for spelled, word in words_of(None).items()}
    spec: dict[str, Any] = {
        known[word]: _changed(value, bare.get(word)) if word in NESTED else value
        for word, value in job.to_dict().items()
        if word in known and (word in ("identity", "schedule") or value != bare.get(word))
    }
    if spec.get("policy", {}).get("deadline", NEVER) is None:
        spec["policy"]["deadline"] = NEVER
    if "distribution" in spec:
        spec["distribution"] = {each: part for each, part in spec["distribution"].items() if part is not None}
    if "constraints" in spec:
        spec["constraints"], calendars = _named_calendars(spec["constraints"])
        spec |= {"calendars": calendars} if calendars else {}
    if spec["identity"] == f"{namespace}/{name}":
        del spec["identity"]
    metadata = {"namespace": namespace, "name": name}
    document = {"apiVersion": KRONJOBS.api_version, "kind": KRONJOBS.kind, "metadata": metadata}
    return {**document, "spec": {**spec, "jobTemplate": dict(template)}}


def _changed(value: Any, plain: Any) -> dict[str, Any]:
    """Return the fields of an object that differ from their defaults."""
    return {camel(each): part for each, part in value.items() if part != plain.get(each)}


def _named_calendars(constraints: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return constraints that name their calendars, and the days of these."""
    named: dict[str, Any] = {}
    calendars: dict[str, Any] = {}
    for side, rule in constraints.items():
        named[side] = dict(rule)
        if isinstance(rule.get("calendars"), Mapping):
            calendars |= rule["calendars"]
            named[side]["calendars"] = list(rule["calendars"])
    return named, calendars
