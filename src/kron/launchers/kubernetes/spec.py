"""The launcher object of the kind `kubernetes`: fields, limits and secrets."""

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kron.core.errors import Problem
from kron.core.fields import FieldTable, ValueType, invalid_value, parse_text, row, text_problems
from kron.core.plan.report import Traits
from kron.core.redaction import HIDDEN
from kron.core.value_types import nullable
from kron.launchers.kubernetes.access import ClusterAccess
from kron.launchers.spec import (
    MIN_LOGGED_SECRET,
    InvalidLauncherError,
    LauncherConfig,
    TableSettings,
    launcher_table,
    settings_parser,
)

NOT_ALLOWED = "is not among the namespaces the settings allow (allowed_namespaces)"
NO_OWNER = "belongs to the operator of KronJobs; leave it out"
# The fields that say what a Job does.
WORK = ("namespace", "template", "owner")
CONTAINERS = ("initContainers", "containers")
# A Job that is created is known to exist, and its end is watched: `remote` work would need a run timeout.
TRAITS = Traits(reports=True, idempotent=True, enqueues=False, remote=False)


def _parse_object(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise invalid_value(value, "must be an object")
    for problem in text_problems(value, ""):
        raise invalid_value(problem.value, problem.reason)
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise invalid_value("...", "must be a JSON document") from None
    return value


def parse_dns_name(value: object) -> str:
    """Return a name as Kubernetes has them, or refuse the value."""
    text = parse_text(value)
    if not text or not all(each.isascii() and (each.isalnum() or each in "-.") for each in text):
        raise invalid_value(value, "must be a name of Kubernetes: letters, digits, - and .")
    return text


OBJECT = ValueType(schema={"type": "object"}, parse=_parse_object)
NAME = ValueType(schema={"type": "string"}, parse=parse_dns_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings(TableSettings):
    """Where Jobs are created, how their names start, from which template, and which object owns them."""

    kind: ClassVar[str] = "kubernetes"
    table: ClassVar[FieldTable]
    unquoted: ClassVar[tuple[str, ...]] = ("template",)

    namespace: str = field(default="default", metadata=row(NAME, "the namespace of the Jobs"))
    name: str = field(default="kron", metadata=row(NAME, "how the names of the Jobs start"))
    template: Mapping[str, Any] = field(
        default_factory=dict,
        hash=False,
        metadata=row(
            OBJECT, "the Job: `metadata` (labels, annotations) and `spec`; variables are never shown"
        ),
    )
    owner: Mapping[str, Any] | None = field(
        default=None,
        hash=False,
        metadata=row(
            nullable(OBJECT), "the owner of the Jobs, for the operator of KronJobs only", sparse=True
        ),
    )

    def redacted(self) -> dict[str, object]:
        """Return the launcher object without the values of its containers' variables."""
        template = deepcopy(dict(self.template))
        for variable in _variables_in(template):
            variable["value"] = HIDDEN
        return {**self.to_dict(), "template": template}

    def secrets(self) -> list[str]:
        """Return the values of its containers' variables."""
        values = [str(variable["value"]) for variable in _variables_in(self.template)]
        return [value for value in values if len(value) >= MIN_LOGGED_SECRET]

    def problems(self, config: LauncherConfig) -> list[Problem]:
        """Return why the settings do not allow the namespace or an owner; the default's Job is allowed."""
        allowed = config.get(KubernetesOptions).allowed_namespaces
        if allowed is None or self.has_same(WORK, config.default):
            return []
        problems = [] if self.owner is None else [Problem("launcher.owner", None, NO_OWNER)]
        if self.namespace not in allowed:
            problems.append(Problem("launcher.namespace", self.namespace, NOT_ALLOWED))
        return problems


KubernetesSettings.table = launcher_table(KubernetesSettings, required=("template",))
settings_of = settings_parser(KubernetesSettings)


def containers_in(pod: object) -> Iterator[dict[str, Any]]:
    """Yield the containers of a pod's template, as far as it has the shape of one."""
    spec = pod.get("spec") if isinstance(pod, Mapping) else None
    for kind in CONTAINERS if isinstance(spec, Mapping) else ():
        containers = spec.get(kind) if isinstance(spec, Mapping) else None
        yield from (each for each in containers or () if isinstance(each, dict))


def _variables_in(template: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the variables with a value of all containers."""
    spec = template.get("spec")
    for container in containers_in(spec.get("template") if isinstance(spec, Mapping) else None):
        variables = container.get("env")
        for each in variables if isinstance(variables, list) else ():
            if isinstance(each, dict) and "value" in each:
                yield each


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesOptions:
    """The cluster, and the namespaces in which schedules may create Jobs; None allows all.

    Without a cluster the launcher cannot be used.
    """

    access: ClusterAccess | None = None
    allowed_namespaces: frozenset[str] | None = None


def check_start(config: LauncherConfig, settings: KubernetesSettings) -> None:
    """Raise InvalidLauncherError unless the namespace is allowed now, or is that of the default launcher."""
    default = config.default
    if isinstance(default, KubernetesSettings) and default.namespace == settings.namespace:
        return
    problems = settings.problems(config)
    if problems:
        raise InvalidLauncherError(problems=problems)
