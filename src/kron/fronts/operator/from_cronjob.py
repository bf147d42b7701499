"""CronJobs as KronJobs: the same starts where that is possible, and a note for everything that differs."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kron.core.errors import InputError
from kron.fronts.operator.crd import HISTORY, NEVER
from kron.fronts.operator.resource import definition_of, kronjob_of
from kron.launchers.kubernetes.api import KRONJOBS, Document

CRONJOB = "CronJob"
# How a CronJob calls its policies, and what it does without one.
CONCURRENCY = {"Allow": "allow", "Forbid": "forbid", "Replace": "replace"}
# The whole range of each day field, so that a step over it does not begin with a star.
WHOLE = {2: "1-31", 4: "0-6"}
_STEP = re.compile(r"[*?]/([0-9]+)")


class ImportedCronJob(NamedTuple):
    """A CronJob as a KronJob, None if it cannot be one; and what differs, for people."""

    name: str
    manifest: Document | None
    notes: list[str]
    problem: str | None = None


def cronjobs_in(documents: Iterable[object]) -> list[Document]:
    """Return the CronJobs among the documents of a file, those of lists included."""
    found: list[Document] = []
    for each in documents:
        if isinstance(each, Mapping):
            listed = each.get("items") if str(each.get("kind", "")).endswith("List") else [each]
            found += [dict(item) for item in listed or () if isinstance(item, Mapping)]
    return [each for each in found if each.get("kind") == CRONJOB]


def kronjob_from(cronjob: Document) -> ImportedCronJob:
    """Return a CronJob as a KronJob with the same starts, and what differs."""
    metadata, spec = cronjob.get("metadata") or {}, cronjob.get("spec") or {}
    name = str(metadata.get("name", ""))
    notes: list[str] = []
    zone, expression = _without_zone(str(spec.get("schedule", "")))
    fields: Document = {"schedule": _schedule(expression, notes)}
    if spec.get("timeZone") or zone:
        fields["timezone"] = spec.get("timeZone") or zone
    else:
        notes.append("no timeZone: a CronJob follows the controller manager's zone, the KronJob UTC")
    kept = {key: metadata[key] for key in ("name", "namespace", "labels") if key in metadata}
    limits = {key: spec[key] for key in HISTORY if key in spec}
    fields |= {"policy": _policy(spec, notes), **limits, "jobTemplate": _template(spec)}
    manifest = {"apiVersion": KRONJOBS.api_version, "kind": KRONJOBS.kind, "metadata": kept, "spec": fields}
    try:
        definition_of(kronjob_of(manifest), {})
    except (InputError, KeyError) as error:
        return ImportedCronJob(name, None, notes, str(error))
    return ImportedCronJob(name, manifest, notes)


def _without_zone(text: str) -> tuple[str | None, str]:
    """Return the zone that an expression begins with, as older clusters accept it, and the rest."""
    prefix, _, rest = text.strip().partition(" ")
    name, sign, zone = prefix.partition("=")
    return (zone, rest.strip()) if sign and name in ("TZ", "CRON_TZ") else (None, text)


def _schedule(text: str, notes: list[str]) -> str:
    """Return an expression that has the same days.

    Kubernetes joins both day fields by "or" if neither is a plain star: `*/10` is none. Kron joins them by
    "and" if either begins with a star, as cron does.
    """
    fields = [("*" if field == "?" else field) for field in text.split()]
    if len(fields) != 5 or all(field == "*" for field in (fields[2], fields[4])):
        return text if len(fields) != 5 else " ".join(fields)
    if "*" in (fields[2], fields[4]):
        return " ".join(fields)
    for place, whole in WHOLE.items():
        step = _STEP.fullmatch(fields[place])
        if step is not None and int(step[1]) > 1:
            notes.append(
                f'day rule: Kubernetes joins both day fields of "{text}" by "or"; '
                f"{fields[place]} is written as {whole}/{step[1]}, so that Kron does too"
            )
            fields[place] = f"{whole}/{step[1]}"
    return " ".join(fields)


def _policy(spec: Mapping[str, Any], notes: list[str]) -> Document:
    deadline = spec.get("startingDeadlineSeconds")
    policy: Document = {
        "concurrency": CONCURRENCY.get(str(spec.get("concurrencyPolicy") or "Allow"), "allow"),
        "deadline": NEVER if deadline is None else f"{deadline}s",
        "catchup": "once",
    }
    if spec.get("suspend"):
        policy["suspend"] = True
    notes.append(
        "after an outage the newest missed period starts, as with a CronJob, even after more than 100"
    )
    return policy


def _template(spec: Mapping[str, Any]) -> Document:
    template = dict(spec.get("jobTemplate") or {})
    metadata = template.get("metadata") or {}
    kept = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
    return {**({"metadata": kept} if kept else {}), "spec": template.get("spec") or {}}
