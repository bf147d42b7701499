"""Sets of definitions over HTTP: one request, all or nothing, only on the state its plan has seen."""

import json
from pathlib import Path
from typing import Any

import pytest

from kron.app.apply import MAX_APPLIED
from kron.fronts.service.api.middleware import MAX_WHOLE
from tests.service.server import serving

HTTP = {"kind": "http", "url": "http://127.0.0.1:9/"}


def a_job(name: str, schedule: str = "0 0 * * *", **fields: Any) -> dict[str, Any]:
    return {"identity": name, "schedule": schedule, "launcher": HTTP, "policy": {"deadline": "1m"}, **fields}


@pytest.fixture
def client(tmp_path: Path) -> Any:
    # With an executor, schedules without a launcher have no default one.
    with serving(tmp_path, KRON_EXECUTOR='{"kind": "log"}') as (client, _):
        yield client


def kinds(answer: Any) -> dict[str, str]:
    return {change["schedule_id"]: change["change"] for change in answer.json()["changes"]}


def test_a_dry_run_plans_exactly_what_the_write_does(client: Any) -> None:
    assert kinds(client.post("/definitions", json={"jobs": [a_job("a"), a_job("b")]})) == {
        "a": "created",
        "b": "created",
    }
    wanted = {"jobs": [a_job("b", "0 1 * * *"), a_job("c")], "prune": True}
    plan = client.post("/definitions", json={**wanted, "dry_run": True})
    assert kinds(plan) == {"b": "changed", "c": "created", "a": "deleted"}
    assert [each["definition"]["identity"] for each in client.get("/definitions").json()["jobs"]] == [
        "a",
        "b",
    ]
    etags = {change["schedule_id"]: change["etag"] for change in plan.json()["changes"]}
    assert kinds(client.post("/definitions", json={**wanted, "if_match": etags})) == kinds(plan)
    assert kinds(client.post("/definitions", json=wanted)) == {"b": "unchanged", "c": "unchanged"}


@pytest.mark.slow
def test_a_set_of_as_many_jobs_as_are_allowed_may_have_many_fields(client: Any) -> None:
    fields: dict[str, Any] = {
        "schedule": "0,5,10,15,20,25,30,35,40,45,50,55 2,3,4 * * 1,2,3,4,5",
        "timezone": "Europe/Berlin",
        "window": {"mode": "after", "duration": "1h"},
        "constraints": {"avoid": {"dates": [f"2030-{month:02}-01" for month in range(1, 13)]}},
        "policy": {"overlap": "queue", "catchup": "once", "deadline": "1h", "retry_delay": "1m"},
    }
    jobs = [a_job(f"team/service-{number}", **fields) for number in range(MAX_APPLIED)]
    body = json.dumps({"jobs": jobs, "dry_run": True})
    assert len(body) < MAX_WHOLE
    answer = client.post("/definitions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200, answer.text[:500]
    assert len(kinds(answer)) == MAX_APPLIED


def test_a_schedule_that_changed_since_the_plan_keeps_all_from_being_written(client: Any) -> None:
    client.post("/definitions", json={"jobs": [a_job("a"), a_job("b")]})
    wanted = {"jobs": [a_job("a", "5 0 * * *"), a_job("b", "5 0 * * *")]}
    plan = client.post("/definitions", json={**wanted, "dry_run": True}).json()
    client.post("/definitions", json={"jobs": [a_job("b", "9 9 * * *")]})
    etags = {change["schedule_id"]: change["etag"] for change in plan["changes"]}
    answer = client.post("/definitions", json={**wanted, "if_match": etags})
    assert (answer.status_code, answer.json()["code"]) == (412, "schedule_changed")
    stored = [each["definition"]["schedule"] for each in client.get("/definitions").json()["jobs"]]
    assert stored == ["0 0 * * *", "9 9 * * *"]


def test_every_problem_of_every_job_is_reported_at_once(client: Any) -> None:
    jobs = [a_job("a", "x"), a_job("b", launcher=None), a_job("c", launcher={"kind": "http"}), a_job("c")]
    answer = client.post("/definitions", json={"jobs": [*jobs, a_job("c")]})
    assert answer.status_code == 400
    assert [problem["path"] for problem in answer.json()["problems"]] == [
        "jobs[0].schedule",
        "jobs[1].launcher",
        "jobs[2].launcher.url",
        "jobs[4].identity",
    ]
    assert client.get("/definitions").json()["jobs"] == []


def test_an_applied_job_has_the_policy_of_a_job_file_and_an_upsert_that_of_the_service(client: Any) -> None:
    job = {"identity": "a", "schedule": "0 0 * * *", "timezone": "UTC", "launcher": HTTP}
    client.post("/definitions", json={"jobs": [job]})
    client.post("/schedules/upsert", json={**job, "identity": "b"})
    policies = [each["definition"]["policy"] for each in client.get("/definitions").json()["jobs"]]
    assert policies == [
        {"concurrency": "forbid", "deadline": "0s", "suspend": False},
        {"concurrency": "forbid", "deadline": None, "suspend": False, "catchup": "none"},
    ]


def test_a_schedule_shows_its_tags_its_description_its_retention_and_its_set(client: Any) -> None:
    profile: dict[str, Any] = {"description": "why", "tags": ["x"], "retention": {"keep": "1h"}}
    client.post("/definitions", json={"jobs": [a_job("a", **profile)], "set": "billing"})
    client.post("/schedules/upsert", json={**a_job("b", timezone="UTC", tags=["y"]), "policy": {}})
    shown = client.get("/schedules/a").json()
    assert {name: shown[name] for name in profile} == profile
    assert shown["applied_set"] == "billing"
    edit = client.get("/ui/schedule/edit", params={"id": shown["schedule_id"]}).text
    assert "This schedule was applied from <bdi>billing</bdi>" in edit
    for query, names in (("tag=x", ["a"]), ("tag=y", ["b"]), ("applied_set=billing", ["a"]), ("tag=z", [])):
        page = client.get(f"/schedules?{query}").json()
        assert [each["schedule_id"] for each in page["schedules"]] == names
