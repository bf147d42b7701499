"""One definition through every front: the same job, and so the same chosen times and outcomes.

The engine decides by the definition that a front records, and by nothing else of the front; so equal recorded
definitions have equal periods, chosen times and outcomes.
"""

import json
from datetime import datetime
from typing import Any
from uuid import uuid4

from hypothesis import given

import kron
from kron.app.catalog import JobDefinition
from kron.cli.support.job_file import parse_jobs
from kron.cli.support.source import Source
from kron.core.plan.registration import create
from kron.fronts.daemon.job_set import LoadedJobs, definitions_of
from kron.fronts.operator.crd import crds
from kron.fronts.operator.resource import definition_of, kronjob_of, manifest_of
from kron.fronts.service.registrar import stored_job
from kron.fronts.service.schedule_spec import Rules, parse_schedule_spec
from tests.job_strategies import definitions, nominal_times
from tests.kubernetes.api_server import ApiServer

SERVER = ApiServer()
for each in crds():
    SERVER.add("customresourcedefinitions", each, "")
LAUNCHER = {"kind": "process", "command": ["true"]}
POD = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}


def in_the_operator(job: kron.Job) -> JobDefinition:
    """Send a job to an API server as a KronJob, which sets defaults and prunes, and read it there."""
    manifest = manifest_of(job, namespace="a", name="b", template={"spec": {"template": {"spec": POD}}})
    made = SERVER._create(SERVER.kind("kronjobs"), f"a-{uuid4().hex}", json.loads(json.dumps(manifest)))
    return definition_of(kronjob_of(made), {})


def in_krond(job: kron.Job) -> JobDefinition:
    """Write a job into a job file, and read it there."""
    text = json.dumps({"jobs": [{**job.to_dict(), "launcher": LAUNCHER}]})
    parsed = parse_jobs(Source(name="jobs.json", text=text, has_jobs=True))
    (definition,), problems = definitions_of(LoadedJobs(jobs={"jobs.json": parsed.jobs()}))
    assert not problems
    return definition


def in_the_service(job: kron.Job) -> JobDefinition:
    """Send a job to the service as a schedule; without a catch-up policy a schedule has none (SPEC 3)."""
    document: dict[str, Any] = {**job.to_dict(), "launcher": {"kind": "callback"}}
    document["policy"] = {**document["policy"], "catchup": str(job.policy.catchup)}
    spec = parse_schedule_spec(document, Rules(), schedule_id=job.identity)
    return JobDefinition(stored_job(spec, Rules()), "{}", "callback")


@given(definitions(), nominal_times())
def test_a_definition_has_the_same_chosen_times_in_every_front(
    definition: dict[str, Any], nominal_time: datetime
) -> None:
    job = kron.Job.from_dict(definition)
    decision, now = kron.decide(job, nominal_time).to_dict(), 1000 * int(nominal_time.timestamp())
    expected = create(job, now=now)
    for front in (in_the_operator, in_krond, in_the_service):
        other = front(job).job
        record = create(other, now=now)
        # What the engine decides by: the definition, and the name that seeds it.
        assert (record.identity, record.definition) == (expected.identity, expected.definition), front
        assert kron.decide(other, nominal_time).to_dict() == decision, front
