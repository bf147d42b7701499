"""What is deployed: the chart renders to the manifests, and the operator may do exactly what it does."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from kron.fronts.operator.operator import lease_name_of
from tests.kubernetes.api_server import Fault
from tests.kubernetes.cluster import Cluster, kronjob, minute, running_cluster
from tools.crd import CHART, DEPLOY, texts

HELM = DEPLOY / "helm" / "kron-operator"
HELM_PROGRAM = shutil.which("helm", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
Objects = dict[tuple[str, str], dict[str, Any]]


def rendered(values: dict[str, Any], *, release: str, namespace: str) -> Objects:
    """Render the chart, as far as it uses templates: values, toJson, and `if` with `else`."""
    known = {"Values": values, "Release": {"Name": release, "Namespace": namespace}}

    def value(path: str) -> Any:
        found: Any = known
        for word in path.strip(". ").split("."):
            found = found[word]
        return found

    def written(match: re.Match[str]) -> str:
        path, _, function = match[1].partition("|")
        assert function.strip() in ("", "toJson"), match[0]
        return json.dumps(value(path)) if function else str(value(path))

    text = (HELM / "templates" / "operator.yaml").read_text()
    chosen = re.compile(r"\{\{ if ([^}]*?) \}\}(.*?)\{\{ end \}\}", re.DOTALL)

    def part(match: re.Match[str]) -> str:
        first, _, second = match[2].partition("{{ else }}")
        return first if value(match[1]) else second

    text = chosen.sub(part, text)
    return objects_in(re.sub(r"\{\{ (.*?) \}\}", written, text))


def objects_in(text: str) -> Objects:
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text)}


def values() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((HELM / "values.yaml").read_text())
    return loaded


def manifests() -> Objects:
    return objects_in((DEPLOY / "operator" / "operator.yaml").read_text())


def test_the_chart_with_its_defaults_is_the_kustomization() -> None:
    assert rendered(values(), release="kron", namespace="kron-system") == manifests()
    assert {path.name: path.read_text() for path in CHART.iterdir()} == texts()
    for folder in ("crd", "operator"):
        kustomization = yaml.safe_load((DEPLOY / folder / "kustomization.yaml").read_text())
        assert all((DEPLOY / folder / name).exists() for name in kustomization["resources"])


SETS: list[dict[str, Any]] = [
    {},
    {"watchNamespace": "team", "replicas": 3, "leaseSeconds": 30, "logLevel": "debug"},
    {"historySecret": "history", "image": {"repository": "registry.example/kron", "tag": "1.2.3"}},
    {
        "imagePullSecrets": [{"name": "registry"}],
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
    },
]


@pytest.mark.slow
@pytest.mark.skipif(HELM_PROGRAM is None, reason="Helm is not installed")
@pytest.mark.parametrize("changes", SETS)
def test_helm_renders_the_same_objects(changes: dict[str, Any], tmp_path: Path) -> None:
    given = tmp_path / "values.yaml"
    given.write_text(yaml.safe_dump(changes))
    assert HELM_PROGRAM is not None
    command = [HELM_PROGRAM, "template", "kron", str(HELM), "--namespace", "system", "--values", str(given)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    wanted = rendered({**values(), **changes}, release="kron", namespace="system")
    assert objects_in(done.stdout) == wanted
    if changes.get("nodeSelector"):
        pod = wanted["Deployment", "kron-operator"]["spec"]["template"]["spec"]
        assert {name: pod[name] for name in changes} == changes


@pytest.mark.skipif(HELM_PROGRAM is None, reason="Helm is not installed")
def test_helm_refuses_values_that_the_schema_does_not_have() -> None:
    assert HELM_PROGRAM is not None
    command = [HELM_PROGRAM, "template", "kron", str(HELM), "--set", "replica=2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "replica" in done.stderr


def test_the_values_have_a_schema_and_reach_the_operator() -> None:
    schema = json.loads((HELM / "values.schema.json").read_text())
    jsonschema.validate(values(), schema)
    changed = {**values(), "watchNamespace": "team", "replicas": 3, "leaseSeconds": 30}
    jsonschema.validate(changed, schema)
    deployment = rendered(changed, release="x", namespace="y")["Deployment", "x-operator"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {"--namespace=team", "--lease-seconds=30"} <= set(container["args"])
    assert deployment["spec"]["replicas"] == 3


def test_the_pod_is_restricted() -> None:
    pod = manifests()["Deployment", "kron-operator"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    image = (DEPLOY / "Dockerfile").read_text().rpartition("\nFROM ")[2].splitlines()
    (user,) = [line for line in image if line.startswith("USER ")]
    assert user.startswith(f"USER {pod['securityContext']['runAsUser']}:")


def rules_in(objects: Objects) -> list[dict[str, Any]]:
    """Return the rules of all roles; those of a Role hold in its namespace."""
    return [
        {**rule, "namespace": each["metadata"]["namespace"]} if kind == "Role" else rule
        for (kind, _), each in objects.items()
        if kind in ("ClusterRole", "Role")
        for rule in each["rules"]
    ]


@pytest.mark.parametrize("namespace", ["", "team"])
async def test_every_verb_that_is_granted_is_used_and_no_other(namespace: str) -> None:
    objects = rendered({**values(), "watchNamespace": namespace}, release="kron", namespace="kron-system")
    rules = rules_in(objects)
    granted = {
        (rule.get("namespace"), group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    lease = lease_name_of(namespace or None)
    options = {"namespace": namespace or None, "lease_namespace": "kron-system", "lease_name": lease}
    async with running_cluster(**options) as cluster:
        cluster.server.rules = rules
        await _use_everything(cluster, namespace or "default")
        used = {
            (each.namespace if namespace or each.resource == "leases" else None, *each[1:3], each.verb)
            for each in cluster.server.requests
        }
    assert used == granted
    assert [rule["resourceNames"] for rule in rules if "resourceNames" in rule] == [[lease]]


@pytest.mark.parametrize("namespace", ["", "team"])
def test_every_binding_names_a_role_that_exists_and_the_operators_account(namespace: str) -> None:
    objects = rendered({**values(), "watchNamespace": namespace}, release="kron", namespace="kron-system")
    kinds = [kind for kind, _ in objects]
    assert ("ClusterRole" in kinds) is (not namespace)
    for (kind, _), each in objects.items():
        if kind.endswith("Binding"):
            role = objects[each["roleRef"]["kind"], each["roleRef"]["name"]]
            assert role["metadata"].get("namespace") == each["metadata"].get("namespace")
            (account,) = each["subjects"]
            assert objects["ServiceAccount", account["name"]]["metadata"]["namespace"] == account["namespace"]


def test_the_history_is_named_by_a_secret() -> None:
    changed = {**values(), "historySecret": "history"}
    deployment = rendered(changed, release="x", namespace="y")["Deployment", "x-operator"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (variable,) = container["env"]
    assert variable["name"] == "KRON_HISTORY"
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "history", "key": "url"}
    assert "postgres" in (DEPLOY / "Dockerfile").read_text()


async def _use_everything(cluster: Cluster, namespace: str) -> None:
    """Start, conflict, create again, end, delete and hand over."""
    cluster.options = replace(cluster.options, lease_duration=timedelta(minutes=3))
    await cluster.start()
    await cluster.add(kronjob(successfulJobsHistoryLimit=0), namespace)
    # A lost answer makes the operator read the KronJob; one to a creation, the Job that exists already.
    cluster.server.faults = [
        Fault(lambda each: each.verb == "patch", cut="after", times=2),
        Fault(lambda each: (each.verb, each.resource) == ("create", "jobs"), cut="after", times=2),
    ]
    await cluster.advance(minute(1, 40))
    await cluster.eventually(lambda: cluster.jobs() == ["12:01"])
    cluster.server.complete(cluster.job_of("12:01")["metadata"]["name"], namespace)
    await cluster.eventually(lambda: cluster.jobs() == [])
    await cluster.eventually(lambda: cluster.server.objects("events"))
    await cluster.stop()
