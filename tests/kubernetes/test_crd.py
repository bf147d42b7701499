"""The custom resources: their files, their schemas, and what KronJobs mean."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given

from kron.core.errors import InvalidJobError
from kron.core.job.job import JOB, Job
from kron.fronts.operator.crd import LEFT_OUT, camel, crds
from kron.fronts.operator.resource import definition_of, kronjob_of, manifest_of
from tests.job_strategies import definitions
from tests.kubernetes.api_server import ApiServer, Refused
from tests.kubernetes.structural_schema import faults_of, prune, structural_faults
from tools.crd import FOLDER, texts

POD = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
TEMPLATE: dict[str, Any] = {"spec": {"template": {"spec": POD}}}


def kronjob(name: str = "backup", **spec: object) -> dict[str, Any]:
    document = {"apiVersion": "kron.io/v1alpha1", "kind": "KronJob", "metadata": {"name": name}}
    return {**document, "spec": {"schedule": "0 3 * * *", "jobTemplate": TEMPLATE, **spec}}


@pytest.fixture
def cluster() -> ApiServer:
    server = ApiServer()
    for crd in crds():
        server.add("customresourcedefinitions", crd, "")
    return server


def test_the_shipped_files_are_the_generated_ones() -> None:
    assert {path.name: path.read_text() for path in FOLDER.glob("*.kron.io.yaml")} == texts()


def test_the_schemas_are_structural() -> None:
    for crd in crds():
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        assert not list(structural_faults(schema))


def test_every_field_of_a_definition_is_one_of_a_kronjob() -> None:
    spec = crds()[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert {camel(row.word) for row in JOB.rows if row.name not in LEFT_OUT} <= spec["properties"].keys()


def test_the_api_server_sets_the_defaults_of_the_field_table(cluster: ApiServer) -> None:
    made = cluster.add("kronjobs", kronjob(policy={}, window={}))
    assert made["spec"]["policy"]["concurrency"] == "forbid"
    assert made["spec"]["policy"]["deadline"] == "0s"
    assert made["spec"]["window"] == {"mode": "after", "duration": "0s"}
    assert made["spec"]["successfulJobsHistoryLimit"] == 3
    assert definition_of(kronjob_of(made), {}).job == definition_of(kronjob_of(kronjob()), {}).job


@pytest.mark.parametrize(
    "wrong",
    [
        {"policy": {"concurrency": "never"}},
        {"policy": {"deadline": "soon"}},
        {"policy": {"startAt": "2026-02-01T00:00:00Z", "endAt": "2026-01-01T00:00:00Z"}},
        {"window": {"duration": 5}},
        {"distribution": {"name": "normal", "shape": 0}},
        {"constraints": {"only": {"between": ["25:00-26:00"]}}},
        {"identity": ""},
        {"successfulJobsHistoryLimit": -1},
    ],
)
def test_the_api_server_refuses_what_the_schema_excludes(cluster: ApiServer, wrong: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="invalid"):
        cluster.add("kronjobs", kronjob(**wrong))


def test_an_identity_cannot_be_changed(cluster: ApiServer) -> None:
    cluster.add("kronjobs", kronjob("a", identity="team/a"))
    cluster.add("kronjobs", kronjob("b"))
    for name in ("a", "b"):
        with pytest.raises(Refused, match="identity is fixed"):
            cluster.edit("kronjobs", name, {"spec": {"identity": "other"}})


def test_unknown_fields_are_pruned_and_templates_are_kept_whole(cluster: ApiServer) -> None:
    made = cluster.add("kronjobs", kronjob(unknown=1))
    assert "unknown" not in made["spec"]
    assert made["spec"]["jobTemplate"] == TEMPLATE


def test_a_calendar_of_the_namespace_can_be_named() -> None:
    document = kronjob(constraints={"avoid": {"calendars": ["holidays"]}})
    with pytest.raises(InvalidJobError, match="holidays"):
        definition_of(kronjob_of(document), {})
    job = definition_of(kronjob_of(document), {"holidays": ["2026-12-24..2026-12-26"]}).job
    assert job.constraints.avoid is not None


def test_a_deadline_that_never_passes_has_a_word() -> None:
    assert definition_of(kronjob_of(kronjob(policy={"deadline": "never"})), {}).job.policy.deadline is None


def test_the_identity_is_given_or_the_place_and_then_the_recorded_one() -> None:
    assert kronjob_of(kronjob()).identity == "default/backup"
    assert kronjob_of(kronjob(identity="team/x")).identity == "team/x"
    assert kronjob_of({**kronjob(), "status": {"identity": "first"}}).identity == "first"


@given(definitions())
def test_a_job_written_as_a_kronjob_is_valid_and_the_same_job(definition: dict[str, Any]) -> None:
    job = Job.from_dict(definition)
    manifest = manifest_of(job, namespace="default", name="a", template=TEMPLATE)
    schema = crds()[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    kept = deepcopy(manifest)
    prune(schema, kept)
    assert kept["spec"] == manifest["spec"]
    assert not list(faults_of(schema, manifest))
    assert definition_of(kronjob_of(manifest), {}).job == job
