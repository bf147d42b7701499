"""Pages and routes in the small: unknown parameters, wrong times, manual runs, waiting retries."""

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from kron.core.job.outcome import Outcome, Reason
from kron.core.plan.record import RangeRecord, Result, RunKind, RunStatus
from kron.fronts.service.web.attention import dropped_problem, manual_of
from kron.fronts.service.web.login import own_page
from kron.fronts.service.web.render import closed
from kron.fronts.service.web.timeline import HOUR, Drawn, Zoom, timeline_of, view_of
from kron.fronts.service.web.view_models import reason_of
from tests.service.server import serving
from tests.service.web.test_pages import page_of
from tests.service.web.test_timeline import NOW, a_run
from tests.service.webpage import Webpage
from tests.waiting import wait_for

SHELL = {"kind": "process", "command": ["/bin/sh", "-c", "exit 0"]}
FAILING = {"kind": "process", "command": ["/bin/sh", "-c", "echo no space left; exit 3"]}
YEARLY = {"cron_expr": "0 0 1 1 *", "timezone": "Europe/Berlin"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with serving(tmp_path_factory.mktemp("small"), KRON_ALLOWED_COMMANDS="/bin/sh") as (client, _):
        yield client


def added(client: httpx.Client, name: str, **fields: object) -> None:
    document = {**YEARLY, "schedule_id": name, "launcher": SHELL, **fields}
    answer = client.post("/schedules/upsert", json=document)
    assert answer.status_code == 200, answer.text


# --- query parameters --------------------------------------------------------------------------------


def test_every_json_route_refuses_an_unknown_query_parameter_and_names_those_it_has(
    client: httpx.Client,
) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    routes = [(method.upper(), path, each) for path, found in paths.items() for method, each in found.items()]
    assert len(routes) > 20
    for method, path, operation in routes:
        known = sorted(each["name"] for each in operation.get("parameters", ()) if each["in"] == "query")
        url = path.replace("{version}", "1").replace("{schedule_id}", "x").replace("{", "").replace("}", "")
        body = None if method in ("GET", "DELETE") else b"{}"
        headers = {"content-type": "application/x-ndjson" if "bulk" in path else "application/json"}
        answer = client.request(method, url, params={"serach": "x"}, content=body, headers=headers)
        assert answer.status_code == 400, (method, path, answer.text)
        problem = answer.json()
        assert "serach" in problem["detail"], (path, problem)
        if problem["code"] == "invalid_option":
            has = f"this route has {', '.join(known)}" if known else "this route has none"
            assert f"unknown query parameter; {has}" in problem["detail"], path
    listed = client.get("/schedules", params={"search": "x", "limit": 3, "tag": "y"})
    assert listed.status_code == 200


# --- pages -----------------------------------------------------------------------------------------


def test_a_wrong_time_keeps_the_schedule_and_what_was_typed_in_reach(client: httpx.Client) -> None:
    added(client, "a/b c")
    page = page_of(client, "/ui/period", 400, id="a/b c", at="last <night>")
    assert "Not a time" in page.text
    assert "Europe/Berlin" in page.text
    assert "/ui/schedule?id=a%2Fb%20c" in page.links
    fields = {field["name"]: field["value"] for field in page.all("input")}
    assert fields == {"id": "a/b c", "at": "last <night>"}


def test_a_manual_run_has_a_page_with_its_data_interval(client: httpx.Client) -> None:
    added(client, "by-hand")
    key = client.post("/schedules/by-hand/run").json()["idempotency_key"]
    wait_for(lambda: client.get("/schedules/by-hand/runs").json()["runs"][0]["status"] == "SUCCESS")
    for path in ("/ui/runs", "/ui/schedule"):
        page = page_of(client, path, **({"id": "by-hand"} if path == "/ui/schedule" else {}))
        links = [urlsplit(link) for link in page.links]
        assert key in [parse_qs(link.query)["key"][0] for link in links if link.path == "/ui/run"], path
    page = page_of(client, "/ui/run", key=key)
    for words in ("Manual run", "success", "Started manually", key, "data interval", "1 Jan"):
        assert words in page.text, words
    assert {"/ui/schedule?id=by-hand", "/ui/schedule/run?id=by-hand"} <= set(page.links)
    assert page_of(client, "/ui/run", 404, key="unknown").text


def test_a_run_between_two_attempts_is_waiting_to_retry(client: httpx.Client) -> None:
    added(client, "again", cron_expr="* * * * * *", launcher=FAILING, retry_delay="1h", end_at=None)

    def waiting() -> dict[str, str] | None:
        runs = client.get("/schedules/again/runs").json()["runs"]
        return next((run for run in runs if run["retry_at"]), None)

    wait_for(lambda: waiting() is not None)
    client.post("/schedules/pause", json={"schedule_id": "again", "paused": True})
    # A run that was executing when the schedule was paused fails after that.
    wait_for(lambda: waiting() is not None)
    run = waiting()
    assert run is not None
    assert run["status"] == "FAILED"
    assert run["sentence"] == (
        f"waiting to retry: attempt {run['attempt']} failed, the next one starts at {run['retry_at']}"
    )
    page = page_of(client, "/ui/schedule", id="again")
    assert "waiting to retry" in page.text
    assert f"{run['sentence']}: exit status 3: no space left" in page.text
    assert "waiting to retry" in page_of(client, "/", search="again").text


def test_the_definition_of_a_schedule_is_a_live_part_of_its_page(client: httpx.Client) -> None:
    added(client, "edited")
    before = Webpage(client.get("/ui/schedule", params={"id": "edited"}).text)
    live = {attributes["id"] for _, attributes in before.elements if "data-live" in attributes}
    assert {"definition", "sentence", "coming", "history"} <= live


# --- login -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "page"),
    [
        ("/ui/period?id=a%2Fb&at=2026-01-01T00:00:00Z", None),
        ("/?search=x", None),
        ("/docs#upsert", None),
        ("/", "/"),
        ("//evil.example/ui/", "/"),
        ("https://evil.example/ui/runs", "/"),
        ("/\\evil.example", "/"),
        ("/ui/\\evil", "/"),
        ("/schedules", "/"),
        ("/ui/x\r\nSet-Cookie: a=b", "/"),
        ("javascript:alert(1)", "/"),
        ("/logout", "/"),
        ("http://[", "/"),
        ("", "/"),
    ],
)
def test_a_login_returns_to_pages_of_this_service_alone(target: str, page: str | None) -> None:
    assert own_page(target) == (target if page is None else page)


def test_a_run_that_failed_without_an_error_says_how_it_ended() -> None:
    lost = a_run(NOW, RunStatus.FAILED)._replace(result=Result.ORPHANED)
    assert reason_of(lost) == "lost: its worker ended while it ran"
    manual = manual_of(lost._replace(kind=RunKind.MANUAL))
    assert manual == (lost.key, "lost: its worker ended while it ran")
    assert reason_of(lost._replace(error="exit status 3")) == "exit status 3"


def test_a_lane_says_that_its_schedule_is_stopped() -> None:
    view = view_of(Zoom.DAY, NOW, NOW)
    runs = [a_run(NOW - HOUR, RunStatus.FAILED)]
    drawn = [Drawn("idle", stopped="paused"), Drawn("late", runs=runs, stopped="paused"), Drawn("other")]
    summaries = {lane.label: lane.summary for lane in timeline_of(drawn, view, Zoom.DAY).lanes}
    assert summaries == {"idle": "paused", "late": "paused, 1 failed", "other": "nothing in view"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("a\u2067b", "a\u2067b\u2069"),
        ("a\u202eb\u2066c", "a\u202eb\u2066c\u2069\u202c"),
        ("a\u2069b\u202cc", "abc"),
        ("\u2066\u202ea\u2069b", "\u2066\u202ea\u2069b"),
        ("\u202e\u2066a\u202cb", "\u202e\u2066ab\u2069\u202c"),
    ],
)
def test_a_text_ends_the_directions_that_it_begins(text: str, expected: str) -> None:
    assert closed(text) == expected


def test_periods_ahead_that_cannot_start_are_no_news() -> None:
    first = NOW // 1000 - 1_800
    dropped = RangeRecord("job", first, first + 3_600, 3, Outcome.UNSCHEDULABLE, Reason.NO_CANDIDATE, 1, NOW)
    assert dropped_problem(dropped, NOW)[:3] == (1000 * first, "job", first)
    assert dropped_problem(dropped, NOW + 2 * HOUR)[:3] == (1000 * first + HOUR, "job", first + 3_600)
