"""The double keeps the promises of an API server, and the client understands its answers."""

import asyncio
from typing import Any

import pytest

from kron.launchers.kubernetes import api as api_module
from kron.launchers.kubernetes.access import ClusterAccess
from kron.launchers.kubernetes.api import (
    JOBS,
    KRONJOBS,
    LEASES,
    ApiClient,
    ApiError,
    ApiUnavailableError,
    Resource,
    WatchEvent,
    WatchExpiredError,
)
from tests.kubernetes.api_server import ApiServer, Fault, Refused
from tests.kubernetes.structural_schema import structural_faults

CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")


def lease(name: str = "lead", **spec: object) -> dict[str, Any]:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}


def job(name: str, **metadata: object) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
    document = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, **metadata}}
    return {**document, "spec": {"template": {"spec": pod}}}


def things(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a CRD of the resource `kronjobs` with any schema of its spec."""
    root = {
        "type": "object",
        "properties": {"spec": schema, "status": {"type": "object", api_preserve: True}},
    }
    version = {"name": "v1alpha1", "served": True, "storage": True, "subresources": {"status": {}}}
    names = {"plural": "kronjobs", "kind": "KronJob"}
    spec = {
        "group": "kron.io",
        "names": names,
        "versions": [{**version, "schema": {"openAPIV3Schema": root}}],
    }
    document = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return {**document, "metadata": {"name": "kronjobs.kron.io"}, "spec": spec}


api_preserve = "x-kubernetes-preserve-unknown-fields"


def thing(**spec: object) -> dict[str, Any]:
    return {"apiVersion": "kron.io/v1alpha1", "kind": "KronJob", "metadata": {"name": "a"}, "spec": spec}


async def collect(client: ApiClient, version: str, count: int, **options: Any) -> list[WatchEvent]:
    events: list[WatchEvent] = []
    async for event in client.watch(JOBS, None, version, **options):
        events += [event] if event.type != "BOOKMARK" else []
        if len(events) == count:
            break
    return events


async def test_a_write_with_an_old_resource_version_is_refused(server: ApiServer, api: ApiClient) -> None:
    first = await api.create(LEASES, "default", lease(leaseTransitions=1))
    second = await api.replace(LEASES, "default", {**first, "spec": {"leaseTransitions": 2}})
    with pytest.raises(ApiError) as refused:
        await api.replace(LEASES, "default", {**first, "spec": {"leaseTransitions": 3}})
    assert refused.value.is_conflict
    assert (await api.get(LEASES, "default", "lead"))["spec"] == {"leaseTransitions": 2}
    assert second["metadata"]["uid"] == first["metadata"]["uid"]
    with pytest.raises(ApiError, match="AlreadyExists") as exists:
        await api.create(LEASES, "default", lease())
    assert not exists.value.is_conflict


async def test_only_a_write_without_an_answer_in_time_may_be_made_later(
    server: ApiServer,
) -> None:
    impatient = ApiClient(ClusterAccess(server.url), request_s=0.05)
    server.faults.append(Fault(lambda request: request.verb == "create", delay=1.0))
    with pytest.raises(ApiUnavailableError) as late:
        await impatient.create(JOBS, "default", job("a"))
    assert late.value.may_follow
    impatient.close()
    nobody = ApiClient(ClusterAccess("http://127.0.0.1:9"))
    with pytest.raises(ApiUnavailableError) as away:
        await nobody.create(JOBS, "default", job("a"))
    assert not away.value.may_follow
    nobody.close()


async def test_a_status_patch_changes_the_status_alone(server: ApiServer, api: ApiClient) -> None:
    await api.create(CRDS, None, things({"type": "object", api_preserve: True}))
    made = server.add("kronjobs", {**thing(schedule="@daily"), "status": {"a": 1}})
    assert "status" not in made, "a status is not created with its object"
    version = made["metadata"]["resourceVersion"]
    change = {"metadata": {"resourceVersion": version}, "spec": {"schedule": "@hourly"}, "status": {"b": 2}}
    after = await api.patch_status(KRONJOBS, "default", "a", change)
    assert (after["spec"], after["status"]) == ({"schedule": "@daily"}, {"b": 2})
    assert after["metadata"]["generation"] == 1
    with pytest.raises(ApiError) as refused:
        await api.patch_status(KRONJOBS, "default", "a", change)
    assert refused.value.is_conflict
    edited = server.edit("kronjobs", "a", {"spec": {"schedule": "@weekly"}, "status": {"b": 3}})
    assert (edited["metadata"]["generation"], edited["status"]) == (2, {"b": 2})


async def test_objects_are_listed_in_pages_and_by_labels(
    server: ApiServer, api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "PAGE", 2)
    for number in range(5):
        server.add("jobs", job(f"j{number}", labels={"odd": str(number % 2)}))
    listed = await api.list(JOBS)
    assert [each["metadata"]["name"] for each in listed.items] == ["j0", "j1", "j2", "j3", "j4"]
    assert len([each for each in server.requests if each.verb == "list"]) == 3
    assert len((await api.list(JOBS, "default", labels="odd=1")).items) == 2
    assert not (await api.list(JOBS, "other")).items


async def test_a_watch_sends_changes_in_order_and_bookmarks(server: ApiServer, api: ApiClient) -> None:
    version = (await api.list(JOBS)).version
    watching = asyncio.create_task(collect(api, version, 3))
    server.add("jobs", job("a"))
    server.complete("a")
    server.remove("jobs", "a")
    assert [event.type for event in await watching] == ["ADDED", "MODIFIED", "DELETED"]
    async for event in api.watch(JOBS, None, version):
        if event.type == "BOOKMARK":
            assert int(event.object["metadata"]["resourceVersion"]) >= server.version
            break


async def test_a_watch_from_a_compacted_version_expires(server: ApiServer, api: ApiClient) -> None:
    version = (await api.list(JOBS)).version
    server.add("jobs", job("a"))
    server.compact()
    with pytest.raises(WatchExpiredError):
        await collect(api, version, 1)


async def test_a_cut_watch_is_reported_and_can_be_continued(server: ApiServer, api: ApiClient) -> None:
    version = (await api.list(JOBS)).version
    watching = asyncio.create_task(collect(api, version, 1))
    await asyncio.sleep(0.02)
    server.cut_watches()
    with pytest.raises(ApiUnavailableError):
        await watching
    server.add("jobs", job("a"))
    assert [event.object["metadata"]["name"] for event in await collect(api, version, 1)] == ["a"]


async def test_dependents_are_removed_with_their_owner(server: ApiServer, api: ApiClient) -> None:
    owner = server.add("leases", lease())
    reference = {"uid": owner["metadata"]["uid"], "kind": "Lease", "name": "lead", "apiVersion": "v1"}
    server.add("jobs", job("owned", ownerReferences=[reference]))
    server.add("jobs", job("other"))
    await api.delete(LEASES, "default", "lead")
    assert [each["metadata"]["name"] for each in server.objects("jobs")] == ["other"]


async def test_a_refused_request_is_an_error_and_no_object(api: ApiClient) -> None:
    with pytest.raises(ApiError, match="resourceVersion") as refused:
        await api.create(JOBS, "default", job("a") | {"metadata": {"name": "a", "resourceVersion": "1"}})
    assert refused.value.status == 400


async def test_a_foreground_deletion_waits_for_the_dependents(server: ApiServer, api: ApiClient) -> None:
    server.lingering = True
    made = server.add("jobs", job("a"))
    await api.delete(JOBS, "default", "a", foreground=True, uid=made["metadata"]["uid"])
    assert server.object("jobs", "a")["metadata"]["deletionTimestamp"]
    server.finish_deletion("a")
    with pytest.raises(ApiError) as gone:
        await api.delete(JOBS, "default", "a")
    assert gone.value.status == 404


async def test_a_schema_sets_defaults_prunes_and_validates(server: ApiServer, api: ApiClient) -> None:
    fields = {
        "schedule": {"type": "string", "pattern": "^[^a]*$"},
        "zone": {"type": "string", "default": "UTC"},
        "size": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
        "identity": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]},
    }
    await api.create(CRDS, None, things({"type": "object", "required": ["schedule"], "properties": fields}))
    made = await api.create(KRONJOBS, "default", thing(schedule="* * * * *", other=1, identity="x"))
    assert made["spec"] == {"schedule": "* * * * *", "zone": "UTC", "identity": "x"}
    for wrong in ({}, {"schedule": 1}, {"schedule": "a"}, {"schedule": "*", "size": 0}):
        with pytest.raises(ApiError, match="422 Invalid"):
            await api.create(KRONJOBS, "default", {**thing(**wrong), "metadata": {"name": "b"}})
    with pytest.raises(Exception, match="self == oldSelf"):
        server.edit("kronjobs", "a", {"spec": {"identity": "y"}})


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "string"}}},
        {"type": ["string", "null"]},
        {"type": "object", "additionalProperties": False},
        {"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}, {"type": "number"}]}}},
        {"type": "array"},
        {"type": "string", "const": "a"},
        {"type": "string", "pattern": "(?=a)"},
        {"type": "string", "enum": ["a"], "default": "b"},
        {"type": "string", api_preserve: True},
        {
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "x-kubernetes-validations": [{"rule": "self.a == oldSelf.a"}],
        },
    ],
)
def test_a_schema_that_is_not_structural_is_recognised(schema: dict[str, Any]) -> None:
    assert list(structural_faults(schema))


async def test_a_job_that_ends_needs_its_times_and_conditions(server: ApiServer, api: ApiClient) -> None:
    await api.create(JOBS, "default", job("a"))
    wrong = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    with pytest.raises(ApiError, match="422"):
        await api.patch_status(JOBS, "default", "a", wrong)
    server.complete("a")
    with pytest.raises(ApiError, match="no more than 63"):
        await api.create(JOBS, "default", job("a" * 64))


START, END = "2026-06-01T00:00:00Z", "2026-06-01T00:01:00Z"


def met(*kinds: str) -> list[dict[str, str]]:
    return [{"type": kind, "status": "True"} for kind in kinds]


SUCCEEDED = {
    "startTime": START,
    "completionTime": END,
    "conditions": met("SuccessCriteriaMet", "Complete"),
    "succeeded": 1,
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"startTime": END}, "the startTime does not change"),
        ({"completionTime": "2026-05-01T00:00:00Z"}, "the completionTime is not before the startTime"),
        ({"conditions": met("Complete")}, "Complete needs SuccessCriteriaMet"),
        ({"conditions": met("FailureTarget", "Failed")}, "only a complete Job has a completionTime"),
        ({"conditions": met("Failed"), "completionTime": None}, "Failed needs FailureTarget"),
        (
            {"conditions": met("SuccessCriteriaMet", "Complete", "FailureTarget", "Failed")},
            "a Job either succeeds or fails",
        ),
        ({"active": 1}, "a finished Job has no pods"),
        ({"succeeded": -1}, "counters do not decrease"),
    ],
)
def test_the_status_of_a_job_follows_the_rules_of_real_servers(change: dict[str, Any], message: str) -> None:
    server = ApiServer()
    server.add("jobs", job("a"))
    kind = server.kind("jobs")
    server._patch(kind, ("default", "a"), {"status": {"startTime": START}}, part="status")
    with pytest.raises(Refused, match=message):
        server._patch(kind, ("default", "a"), {"status": SUCCEEDED | change}, part="status")
    server._patch(kind, ("default", "a"), {"status": SUCCEEDED}, part="status")


@pytest.mark.parametrize(
    "wrong",
    [
        {"note": "ü" * 513},
        {"reason": ""},
        {"eventTime": "2026-06-01T00:00:00Z"},
        {"reportingController": "no name"},
        {"type": "Bad"},
        {"regarding": {"namespace": "other"}},
    ],
)
def test_an_event_has_all_fields_within_their_limits(wrong: dict[str, Any]) -> None:
    server = ApiServer()
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "a"},
        "eventTime": "2026-06-01T00:00:00.000000Z",
        "reportingController": "kron.io/operator",
        "reportingInstance": "x",
        "action": "Schedule",
        "reason": "Started",
        "type": "Normal",
        "regarding": {"namespace": "default"},
    }
    with pytest.raises(Refused):
        server.add("events", event | wrong)
    server.add("events", event)


def test_a_lease_has_times_with_microseconds() -> None:
    server = ApiServer()
    with pytest.raises(Refused, match="MicroTime"):
        server.add("leases", lease(renewTime="2026-06-01T00:00:00Z"))
    server.add("leases", lease(renewTime="2026-06-01T00:00:00.000000Z"))


async def test_rules_and_tokens_decide_who_may_do_what(server: ApiServer) -> None:
    server.token = "secret"
    server.rules = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list"]}]
    with pytest.raises(ApiError, match="401"):
        await ApiClient(ClusterAccess(server.url)).list(JOBS)
    client = ApiClient(ClusterAccess(server.url, token=lambda: "secret"))
    assert (await client.list(JOBS)).items == []
    with pytest.raises(ApiError, match="403"):
        await client.create(JOBS, "default", job("a"))
    client.close()


async def test_a_throttled_request_is_repeated_and_other_faults_are_raised(
    server: ApiServer, api: ApiClient
) -> None:
    server.faults = [Fault(lambda each: each.verb == "create", times=2, status=429)]
    await api.create(JOBS, "default", job("a"))
    server.faults = [Fault(lambda each: True, status=503)]
    with pytest.raises(ApiError) as failed:
        await api.get(JOBS, "default", "a")
    assert failed.value.is_temporary
    server.is_down = True
    with pytest.raises(ApiUnavailableError):
        await api.get(JOBS, "default", "a")


async def test_a_lost_answer_leaves_the_write_made(server: ApiServer, api: ApiClient) -> None:
    server.faults = [Fault(lambda each: each.verb == "create", cut="after", times=2)]
    with pytest.raises((ApiUnavailableError, ApiError)):
        await api.create(JOBS, "default", job("a"))
    assert [each["metadata"]["name"] for each in server.objects("jobs")] == ["a"]


async def test_frozen_reads_show_the_past(server: ApiServer, api: ApiClient) -> None:
    server.freeze_reads()
    server.add("jobs", job("a"))
    assert (await api.list(JOBS)).items == []
    server.thaw_reads()
    assert len((await api.list(JOBS)).items) == 1


async def test_a_request_that_its_admission_holds_too_long_is_refused_and_not_executed(
    server: ApiServer, api: ApiClient
) -> None:
    gate = asyncio.Event()
    server.faults = [Fault(lambda each: each.verb == "create", gate=gate)]
    with pytest.raises(ApiError, match="504 Timeout"):
        await api.create(JOBS, "default", job("a"), within_s=0.05)
    gate.set()
    await asyncio.sleep(0.05)
    assert server.objects("jobs") == []
    assert (await api.create(JOBS, "default", job("a"), within_s=0.05))["metadata"]["uid"]
