"""The service's pages over real HTTP: `kron serve` as a process, asked as a browser would."""

import re
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import httpx
import pytest

from kron.fronts.service.web.render import INSTANT
from tests.service.server import serving
from tests.service.webpage import Webpage
from tests.tiers import mostly_slow
from tests.waiting import wait_for

WORK = {"workflow_id": "wf", "version": 3, "user_id": "ann"}
YEARLY = {**WORK, "cron_expr": "0 0 1 1 *", "timezone": "UTC"}
HTML = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "a/b?c=d&e=f#g%2Fh",
    "..",
    "{{ 7 * 7 }}{% raw %}",
    "gpj.\u202etxt \u2066x",
    "early \u2069 end \u2067",
    "😀 ü/日本",
    "x" * 490,
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with serving(tmp_path_factory.mktemp("pages")) as (client, _):
        client.headers.update(HTML)
        yield client


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with serving(tmp_path_factory.mktemp("demo"), "--demo", KRON_LOG_LEVEL="info") as (client, _):
        client.headers.update(HTML)
        yield client


def added(client: httpx.Client, name: str, **fields: object) -> None:
    answer = client.post("/schedules/upsert", json={**YEARLY, "schedule_id": name, **fields})
    assert answer.status_code == 200, answer.text


def is_closed(text: str) -> bool:
    """Say whether a text ends the isolates that it begins, and no other."""
    depth = 0
    for character in text:
        depth += (character in "\u2066\u2067\u2068") - (character == "\u2069")
        if depth < 0:
            return False
    return depth == 0


def page_of(client: httpx.Client, path: str, status: int = 200, /, **parameters: str) -> Webpage:
    """Request a page, and check the rules of every page."""
    answer = client.get(path, params=parameters or None)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8"), path
    policy = dict(rule.split(" ", 1) for rule in answer.headers["content-security-policy"].split("; "))
    assert policy.pop("default-src") == policy.pop("frame-ancestors") == policy.pop("base-uri") == "'none'"
    assert set(policy.values()) == {"'self'"}
    assert answer.headers["x-content-type-options"] == "nosniff"
    page = Webpage(answer.text)
    assert page.faults == [], path
    assert page.inline == [], path
    assert len(page.ids) == len(set(page.ids)), path
    assert len(page.all("h1")) == len(page.all("main")) == 1, path
    assert page.all("html")[0]["lang"] == "en"
    labels = {label.get("for") for label in page.all("label")}
    assert all(field["id"] in labels for field in page.all("input") if "id" in field)
    return page


# --- the overview ----------------------------------------------------------------------------------


def test_an_empty_service_shows_how_to_create_the_first_schedule(tmp_path: Path) -> None:
    with serving(tmp_path) as (client, _):
        page = page_of(client, "/")
        assert "No schedules yet" in page.text
        assert f"curl {str(client.base_url).rstrip('/')}/schedules/upsert" in page.text
        assert "No schedule has run yet" in page_of(client, "/ui/runs").text


def test_the_overview_shows_the_next_run_and_the_state_of_a_schedule(client: httpx.Client) -> None:
    added(client, "look", cron_expr="30 2 * * *", timezone="Europe/Berlin")
    added(client, "look-paused", cron_expr="0 9 * * mon-fri", timezone="Asia/Tokyo", paused=True)
    added(client, "look-utc", cron_expr="0 12 * * *")
    page = page_of(client, "/", search="look")
    for words in ("At 02:30 every day", "30 2 * * * Europe/Berlin", "active", "paused", "no runs"):
        assert words in page.text
    times = page.all("time")
    assert any(time.get("title", "").endswith("UTC") and "T" in time["datetime"] for time in times)
    days = [svg["aria-label"] for svg in page.all("svg")]
    assert days[1] == "Next 24 hours: 0 runs (paused)"
    assert days[2] == "Next 24 hours: 1 run"
    # A paused schedule shows no next run.
    rows = page.text.partition("look-paused")[2].partition("look-utc")[0]
    assert "UTC" not in rows
    assert len([time for time in times if "T" in time["datetime"]]) == 3


def test_the_reason_of_a_pause_is_told_wherever_the_schedule_is(client: httpx.Client) -> None:
    because = "the warehouse moves, ask Ann (OPS-4711)"
    added(client, "held", cron_expr="0 9 * * *", tags=["nightly", "red"], description="Loads the orders.")
    pause = {"schedule_id": "held", "paused": True, "reason": because}
    client.post("/schedules/pause", json=pause).raise_for_status()
    own = page_of(client, "/ui/schedule", id="held")
    assert f"the schedule is resumed. Reason: {because}" in own.text
    assert because in page_of(client, "/", search="held").text
    assert f'title="Paused: {because}"' in client.get("/", params={"search": "held"}).text
    # What it is, beside what happened to it.
    assert "Loads the orders." in own.text
    assert "/?tag=nightly" in own.links
    definition, state = (
        own.text.partition(" Definition ")[2].partition(" Effective policy")[0].split(" State ")
    )
    assert "tags nightly, red" in definition
    assert "created_at" in state
    assert "created_at" not in definition
    # Fields without a value are not part of what a person reads.
    assert "null" not in definition


def test_a_schedule_that_never_starts_says_why(client: httpx.Client) -> None:
    window, constraints = {"mode": "after", "duration": "1h"}, {"only": {"hours": [3]}}
    added(client, "never", cron_expr="0 12 * * *", window=window, constraints=constraints)
    page = page_of(client, "/ui/schedule", id="never")
    assert "No period ahead starts: no time in their windows satisfies the constraints." in page.text
    assert "Time in UTC Explain" in page.text


def test_without_authentication_a_paused_schedule_names_no_caller(client: httpx.Client) -> None:
    added(client, "on-hold", paused=True)
    words = "Paused: no run starts until the schedule is resumed."
    assert words in page_of(client, "/ui/schedule", id="on-hold").text
    assert 'title="Paused manually"' in client.get("/", params={"search": "on-hold"}).text


def test_a_page_says_whether_a_person_or_the_definition_stops_a_schedule(client: httpx.Client) -> None:
    added(client, "still", policy={"suspend": True})
    page = page_of(client, "/ui/schedule", id="still")
    assert "Suspended by its definition" in page.text
    assert "Paused" not in page.text
    client.post("/schedules/pause", json={"schedule_id": "still", "paused": True}).raise_for_status()
    assert "even after a resume" in page_of(client, "/ui/schedule", id="still").text
    answer = client.post("/schedules/pause", json={"schedule_id": "still", "paused": False}).json()
    assert answer["note"].startswith("resumed, but its definition suspends it")
    assert "still" in page_of(client, "/", search="still", state="suspended").text
    assert "No schedules found" in page_of(client, "/", search="still", state="active").text


def test_schedules_are_searched_filtered_and_shown_page_by_page(client: httpx.Client) -> None:
    for number in range(120):
        added(client, f"many/{number:03}", paused=number % 60 == 0)
    seen: list[str] = []
    path = "/?search=many%2F"
    for _ in range(3):
        page = page_of(client, path)
        seen += [a["href"] for a in page.all("a") if a.get("class") == "name"]
        following = [a["href"] for a in page.all("a") if a.get("rel") == "next"]
        path = following[0] if following else ""
    assert path == ""
    assert seen == [f"/ui/schedule?id=many%2F{number:03}" for number in range(120)]
    paused = page_of(client, "/", search="MANY/", state="paused")
    assert [a["href"][-3:] for a in paused.all("a") if a.get("class") == "name"] == ["000", "060"]
    assert "No schedules found" in page_of(client, "/", search="many/", state="failing").text
    assert "No schedules found" in page_of(client, "/", search="nobody\0").text


def test_schedules_are_filtered_by_tag_owner_zone_and_launcher_and_counted(client: httpx.Client) -> None:
    hook = {"kind": "http", "url": "http://127.0.0.1:9/start"}
    added(client, "narrow/a", tags=["red"], timezone="Asia/Tokyo", user_id="zoe")
    added(client, "narrow/b", tags=["red", "blue"], launcher=hook, workflow_id=None, version=None)
    for parameters, expected in (
        ({"tag": "red"}, ["a", "b"]),
        ({"tag": "blue"}, ["b"]),
        ({"owner": "zoe"}, ["a"]),
        ({"zone": "Asia/Tokyo"}, ["a"]),
        ({"launcher": "http"}, ["b"]),
        ({"tag": "red", "launcher": "nothing"}, []),
        ({"zone": "no\0zone"}, []),
    ):
        page = page_of(client, "/", search="narrow/", **parameters)
        names = [a["href"][-1] for a in page.all("a") if a.get("class") == "name"]
        assert names == expected, parameters
        assert f"Schedules {len(expected)} found" in page.text


@pytest.mark.parametrize("name", mostly_slow(HOSTILE, fast=3))
def test_a_hostile_name_is_shown_as_it_is_and_can_be_followed(client: httpx.Client, name: str) -> None:
    added(client, name)
    page = page_of(client, "/", search=name)
    (link,) = [a["href"] for a in page.all("a") if a.get("class") == "name"]
    assert parse_qs(urlsplit(link).query, strict_parsing=True) == {"id": [name]}
    assert re.fullmatch(r"[A-Za-z0-9/?=%._~-]+", link)
    own = page_of(client, link)
    # An end of an isolate that the name did not begin is left out.
    assert " ".join(name.replace("\u2069", "").split()) in own.text
    for path in (link, "/"):
        scripts = {script["src"].partition("?")[0] for script in page_of(client, path).all("script")}
        assert scripts == {"/static/live.js", "/static/keys.js"}
        assert {image["alt"] for image in page_of(client, path).all("img")} == {""}
    story = page_of(client, "/ui/period", id=name, at="2031-01-01T00:00:00Z")
    # What stands beside a name keeps its own direction.
    for page in (own, story, *(page_of(client, path) for path in ("/", "/ui/now", "/ui/fleet", "/ui/audit"))):
        assert [words for words in page.words if not is_closed(words)] == []
    assert "aiting for its fire time" in story.text
    answer = client.get(f"/schedules/{quote(name, safe='')}")
    assert name == ".." or answer.json()["schedule_id"] == name


@pytest.mark.slow
def test_the_output_of_a_process_is_escaped(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo '<script>alert(1)</script>' >&2; exit 3"]
    with serving(tmp_path, KRON_ALLOWED_COMMANDS="/bin/sh") as (client, _):
        launcher = {"kind": "process", "command": command}
        added(client, "loud", cron_expr="* * * * * *", launcher=launcher)
        wait_for(lambda: "failing" in page_of(client, "/", search="loud").text)
        page = page_of(client, "/ui/schedule", id="loud")
        assert "<script>alert(1)</script>" in page.text
        assert page_of(client, "/", state="failing").text.count("loud") == 1


# --- the present -----------------------------------------------------------------------------------


def test_the_page_of_the_present_draws_the_fleet_and_explains_its_problems(demo: httpx.Client) -> None:
    page = page_of(demo, "/ui/now")
    for words in ("demo/export", "10 schedules", "Store: answered in", "Worker: running", "Clock: steady"):
        assert words in page.text
    looks = {use["class"] for use in page.all("use")}
    assert looks >= {"ok", "bad", "next", "none"}
    assert any(rect.get("class") == "window" for rect in page.all("rect"))
    assert "Failed: OSError: the disk is full: /exports" in page.text
    assert "A longer window or fewer constraints leave a time to run." in page.text
    periods = [a["href"] for a in page.all("a") if a["href"].startswith("/ui/period")]
    assert "demo/" in page_of(demo, periods[0]).text
    # Each problem has its actions.
    problems = demo.get("/ui/now").text.partition('class="problems"')[2]
    for action in ("backfill", "run", "pause"):
        assert f"/ui/schedule/{action}?id=demo%2Fexport" in problems, action
    assert "/ui/schedule/resume?id=demo%2Flegacy-sync" in problems


def test_changes_that_cannot_be_read_keep_the_page_of_the_period(client: httpx.Client) -> None:
    added(client, "asked")
    wanted = {"id": "asked", "at": "2031-01-01T00:00:00Z", "if": "window=2h"}
    page = page_of(client, "/ui/period", 400, **wanted)
    assert "window must be an object with mode, duration" in page.text
    assert "Certificate" in page.text
    assert "window=2h" in [each.get("value") for each in page.all("input")]
    page_of(client, "/ui/period", 404, id="nobody", at="2031-01-01T00:00:00Z")


def test_a_schedule_without_a_past_has_nothing_to_replay(client: httpx.Client) -> None:
    added(client, "fresh")
    page = page_of(client, "/ui/schedule/what-if", **{"id": "fresh", "if": "overlap=allow"})
    assert "There is no period to replay yet." in page.text


def test_a_time_that_cannot_be_read_keeps_the_page_of_the_schedule(client: httpx.Client) -> None:
    added(client, "kept")
    page = page_of(client, "/ui/schedule", 400, id="kept", before="lunch")
    assert 'Invalid value "lunch": use an instant such as' in page.text
    assert "Next runs" in page.text
    assert {"name": "before", "value": "lunch"}.items() <= next(
        each for each in page.all("input") if each.get("name") == "before"
    ).items()
    wrong = page_of(client, "/ui/schedule", 400, id="kept", status="LOST").text
    assert "query.status \"LOST\": Input should be 'PENDING'" in wrong
    assert "query.sort \"age\": Input should be 'next'" in page_of(client, "/", 400, sort="age").text
    for empty in ("/?sort=&state=", "/ui/runs?status=", "/ui/schedule?id=kept&status=&before="):
        assert client.get(empty).status_code == 200, empty


def test_the_timeline_is_zoomed_and_moved_by_links(demo: httpx.Client) -> None:
    page = page_of(demo, "/ui/now", zoom="hour")
    (earlier,) = [a["href"] for a in page.all("a") if a.get("aria-label") == "Earlier"]
    past = page_of(demo, earlier)
    assert {line["class"] for line in page.all("line")} == {"tick", "present"}
    back = [a["href"] for a in past.all("a")]
    assert "/ui/now?zoom=hour" in back
    # A moved view is live as long as it has now in it.
    (later,) = [a["href"] for a in past.all("a") if a.get("aria-label") == "Later"]
    present = page_of(demo, later)
    assert "present" in {line["class"] for line in present.all("line")}
    assert [each["data-refresh"] for seen in (past, present) for each in seen.all("body")][-1] == "5"
    ancient = page_of(demo, "/ui/now", zoom="hour", at="2026-01-01T00:00:00Z")
    assert [each["data-refresh"] for each in ancient.all("body")] == ["0"]
    # What is shown stays so in every link of the head: its tag, its zoom and its time.
    narrow = page_of(demo, "/ui/now", zoom="hour", at="2026-01-01T00:00:00Z", tag="nightly")
    links = [link for link in narrow.links if "zoom=" in link]
    assert len(links) == 9
    # Two lead to all schedules.
    assert [link for link in links if "tag=nightly" not in link] == [links[0]] * 2
    assert len([link for link in links if "at=2026-01-01T00%3A00%3A00Z" in link]) == 6
    for zoom in ("day", "week", "month"):
        assert "Timeline" in str(page_of(demo, "/ui/now", zoom=zoom).all("section"))


def test_the_address_of_the_playground_holds_what_is_typed(client: httpx.Client) -> None:
    assert "Type an expression" in page_of(client, "/ui/playground").text
    typed = {"cron": "0 9 * * *", "zone": "Asia/Tokyo", "window": "1h", "constraints": "<b>"}
    page = page_of(client, "/ui/playground", **typed)
    assert {field.get("value") for field in page.all("input")} >= set(typed.values())
    assert "constraints must be JSON" in page.text
    assert "At 09:00 every day" in page_of(client, "/ui/playground", cron="0 9 * * *").text


def test_a_suggestion_of_the_fleet_leads_to_the_plan_of_an_edit(client: httpx.Client) -> None:
    for number in range(4):
        added(client, f"fleet/{number}", cron_expr="0 4 * * *")
    suggested = re.compile(r"A window of 10m after the nominal time: \d instead of 4 starts\.")
    # Viewers share a picture for some seconds: that of another test lacks these schedules.
    wait_for(lambda: suggested.search(page_of(client, "/ui/fleet").text))
    page = page_of(client, "/ui/fleet")
    links = [a["href"] for a in page.all("a") if a["href"] == "/ui/fleet/apply?remedy=window"]
    plan = page_of(client, links[0])
    assert all(f"fleet/{number}" in plan.text for number in range(4))
    assert re.search(
        r"for 4 schedules: the fullest minute of that hour has \d instead of 4 starts\.", plan.text
    )


# --- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        pytest.param("/nowhere", 404, "Not Found", id="no page"),
        pytest.param("/ui/schedule?id=nobody", 404, 'There is no schedule "nobody"', id="no schedule"),
        pytest.param("/ui/schedule?id=%00", 404, "There is no schedule", id="no name"),
        pytest.param("/ui/schedule", 400, "Field required", id="nothing asked"),
        pytest.param("/ui/period?id=errors&at=soon", 400, "write 2026-03-29T01:00:00Z", id="no time"),
        pytest.param("/ui/period?id=nobody&at=2026-01-01", 404, "There is no schedule", id="nobody's period"),
        pytest.param("/?cursor=%3Cb%3E", 400, "use the next_cursor of the last page", id="no cursor"),
        pytest.param("/ui/now?zoom=year", 400, "Input should be", id="no zoom"),
        pytest.param("/ui/now?at=soon", 400, "use an instant such as", id="no instant"),
        pytest.param("/?state=odd", 400, "Input should be", id="no state"),
        pytest.param("/ui/runs?status=ODD", 400, "Input should be", id="no status"),
        pytest.param("/static/nothing.css", 404, "Not Found", id="no file"),
        pytest.param("/static/..%2Fpages.py", 404, "Not Found", id="not a file of ours"),
    ],
)
def test_an_error_is_a_page_for_browsers(client: httpx.Client, path: str, status: int, words: str) -> None:
    added(client, "errors")
    page = page_of(client, path, status)
    assert words in page.text
    # The navigation is that of every other page.
    assert {"/", "/ui/workers"} <= set(page.links)
    assert "Sign out" not in page.text


def test_the_api_answers_browsers_like_other_clients(client: httpx.Client) -> None:
    for path in ("/schedules/nobody", "/runs?limit=0", "/schedules/nobody/runs"):
        answer = client.get(path, headers=HTML)
        assert answer.headers["content-type"] == "application/problem+json", path
    assert client.get("/nowhere", headers={"accept": "*/*"}).json()["code"] == "not_found"


@pytest.mark.slow
def test_a_store_that_cannot_be_used_is_an_error_page(tmp_path: Path) -> None:
    with serving(tmp_path) as (client, _):
        added(client, "lost")
        with closing(sqlite3.connect(tmp_path / "kron.db")) as connection:
            connection.execute("ALTER TABLE runs RENAME TO elsewhere")
        page = page_of(client, "/", 503)
        assert "The store cannot be used" in page.text


@pytest.mark.slow
def test_a_schedule_that_cannot_be_read_takes_nothing_from_the_others(tmp_path: Path) -> None:
    with serving(tmp_path) as (client, _):
        for name in ("damaged", "json", "whole"):
            added(client, name)
        with closing(sqlite3.connect(tmp_path / "kron.db")) as connection, connection:
            for name, text in (("damaged", '{"schedule": "99 * * * *"}'), ("json", "{")):
                values = (text, name)
                connection.execute("UPDATE jobs SET definition = ? WHERE schedule_id = ?", values)
        page = page_of(client, "/")
        assert page.text.count("Unreadable record") == 2
        assert "whole At 00:00 on the 1st of January 0 0 1 1 * UTC" in page.text
        for name in ("damaged", "json"):
            assert "cannot be read" in page_of(client, "/ui/schedule", 500, id=name).text


@pytest.mark.parametrize(
    ("name", "timezone", "fields"),
    [
        pytest.param("last", "Pacific/Kiritimati", {"start_at": "9999-12-30T00:00:00Z"}, id="the last days"),
        pytest.param("past", "Pacific/Niue", {"end_at": "1999-12-30T00:00:00Z"}, id="nothing to come"),
    ],
)
def test_schedules_at_the_ends_of_the_calendar_have_pages(
    client: httpx.Client, name: str, timezone: str, fields: dict[str, object]
) -> None:
    added(client, name, cron_expr="0 * * * *", timezone=timezone, **fields)
    page_of(client, "/", search=name)
    page_of(client, "/ui/schedule", id=name)
    for at in ("9999-12-31T23:00:00Z", "0001-01-01T00:00:00Z", "1999-12-31T10:00"):
        page_of(client, "/ui/period", id=name, at=at)


def test_a_request_for_no_path_at_all_is_answered(client: httpx.Client) -> None:
    with socket.create_connection((client.base_url.host, client.base_url.port or 80), 30) as line:
        line.sendall(
            b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\naccept: text/html\r\nconnection: close\r\n\r\n"
        )
        answer = b"".join(iter(lambda: line.recv(4096), b""))
    assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 405"))


# --- the demo --------------------------------------------------------------------------------------


def links_of(client: httpx.Client, path: str) -> set[str]:
    page = page_of(client, path)
    inner = [link.partition("#") for link in page.links]
    for place, _, part in inner:
        assert place or part in page.ids, f"{path}#{part}"
    return {place for place, _, _ in inner if place}


@pytest.mark.slow
def test_every_link_leads_somewhere(demo: httpx.Client) -> None:
    seen: set[str] = set()
    found = {"/"}
    for _ in range(2):
        found = {link for path in sorted(found) for link in links_of(demo, path) if _is_page(link)} - seen
        seen |= found
    assert len(seen) > 100
    stories = sorted(link for link in seen if link.startswith("/ui/period"))
    assert {link.partition("?")[0] for link in seen} == {
        "/",
        "/docs",
        "/ui/audit",
        "/ui/dags",
        "/ui/fleet",
        "/ui/now",
        "/ui/playground",
        "/ui/schedule/backfill",
        "/ui/schedule/edit",
        "/ui/schedule/what-if",
        "/ui/schedule/pause",
        "/ui/schedule/resume",
        "/ui/schedule/run",
        "/ui/runs",
        "/ui/workers",
        "/ui/workers/drain",
        "/ui/schedule",
        "/ui/period",
    }
    further = {link for path in stories[::10] for link in links_of(demo, path)}
    files = {link for link in further if not _is_page(link)}
    assert {link.partition("?")[0] for link in files} == {
        "/static/icon.svg",
        "/static/keys.js",
        "/static/live.js",
        "/static/style.css",
    }
    for link in files:
        assert "immutable" in demo.get(link).headers["cache-control"]
    assert demo.get("/openapi.json").json()["info"]["title"] == "Kron"


def _is_page(link: str) -> bool:
    return not link.startswith(("/static/", "/openapi.json"))


def test_the_demo_shows_every_kind_of_outcome(demo: httpx.Client) -> None:
    overview = page_of(demo, "/")
    for state in ("active", "paused", "failing"):
        assert state in overview.text
    titles = overview.text
    for outcome in ("success,", "failed,", "skipped:", "unschedulable:"):
        assert f": {outcome} " in titles, outcome
    office = page_of(demo, "/ui/schedule", id="demo/office-hours")
    assert "no time in the window satisfies the constraints" in office.text
    assert re.search(r"\d periods? (was|were) dropped, recorded in \d ranges?", office.text)
    assert "in one range" in office.text
    assert "missed" in office.text
    backup = page_of(demo, "/ui/schedule", id="demo/backup")
    assert "caught up: due during an outage or a pause" in backup.text
    paused = page_of(demo, "/ui/schedule", id="demo/legacy-sync")
    assert "5 failures in a row" in " ".join(badge.get("title", "") for badge in paused.all("span"))
    assert "Paused: no run starts until the schedule is resumed." in paused.text


def test_the_page_of_a_schedule_shows_the_effects_of_clock_changes(demo: httpx.Client) -> None:
    literal = page_of(demo, "/ui/schedule", id="demo/nightly-literal").text
    assert "02:30 skipped: clocks go forward 02:00 to 03:00" in literal
    assert "second of two: clocks go back 03:00 to 02:00" in literal
    close = page_of(demo, "/ui/schedule", id="demo/nightly-close").text
    assert "02:30 moved here: clocks go forward 02:00 to 03:00" in close
    assert "second 02:30 left out" in close


def test_a_schedule_shows_its_year_its_durations_and_its_policy_with_origins(demo: httpx.Client) -> None:
    listed = page_of(demo, "/", search="nightly-literal")
    assert "Last 30 outcomes, as high as they took" in [svg.get("aria-label") for svg in listed.all("svg")]
    page = page_of(demo, "/ui/schedule", id="demo/legacy-sync")
    labels = [svg.get("aria-label", "") for svg in page.all("svg")]
    assert "Past year by day: 5 failed" in labels
    assert any(label.startswith("Durations: median 400 ms, 95th percentile 400 ms") for label in labels)
    assert "pause_after_failures 5 definition" in page.text
    assert "overlap forbid default" in page.text
    runs = demo.get("/schedules/demo%2Flegacy-sync/runs").json()["runs"]
    parameters = {"id": "demo/legacy-sync", "before": runs[-2]["run_at"]}
    history = demo.get("/ui/schedule", params=parameters).text.partition('id="history"')[2]
    assert [run["run_at"].replace(":", "%3A") in history for run in runs] == [False] * 4 + [True]
    coming = page_of(demo, "/ui/schedule", id="demo/nightly-close")
    ahead = {a["href"] for a in coming.all("a") if a["href"].startswith("/ui/period")}
    ended = demo.get("/schedules/demo%2Fnightly-close/runs", params={"limit": 100}).json()["runs"]
    past = {quote(run["run_at"], safe="") for run in ended}
    assert len([link for link in ahead if link.rpartition("=")[2] not in past]) == 20


def test_a_period_shows_its_window_its_attempts_and_its_certificate(demo: httpx.Client) -> None:
    runs = demo.get("/schedules/demo%2Fbackup/runs").json()["runs"]
    ended = next(run for run in runs if run["status"] == "SUCCESS")
    page = page_of(demo, "/ui/period", id="demo/backup", at=ended["run_at"])
    labels = [svg.get("aria-label", "") for svg in page.all("svg")]
    assert any(label.startswith("Window from ") and "chosen: 20" in label for label in labels)
    assert any(label.startswith("Attempt 1: 6 s, success") for label in labels)
    assert "| kron verify -" in page.text


def test_a_wall_time_that_is_skipped_is_answered_too(demo: httpx.Client) -> None:
    page = page_of(demo, "/ui/period", id="demo/nightly-literal", at="2027-03-28T02:30")
    assert "Not a period" in page.text
    assert "dst_gap" in page.text
    assert "What if?" not in page.text


def test_a_time_that_is_no_period_has_neither_a_window_nor_a_certificate(demo: httpx.Client) -> None:
    page = page_of(demo, "/ui/period", id="demo/backup", at="2026-01-05T12:34:56Z")
    assert "is not a nominal time" in page.text
    for words in ("kron verify", "Chosen:", "What if?"):
        assert words not in page.text


def test_all_times_of_a_page_of_a_schedule_are_in_its_zone(demo: httpx.Client) -> None:
    run = demo.get("/schedules/demo%2Fbackup/runs", params={"limit": 1}).json()["runs"][0]
    page = page_of(demo, "/ui/period", id="demo/backup", at=run["run_at"])
    assert re.search(r"Its nominal time is \w+ \d+ \w+ [\d: ]+ E[SD]T", page.text)
    assert re.search(r"Chosen: \w+ \d+ \w+ [\d: ]+ E[SD]T", page.text)
    typed = page_of(demo, "/ui/playground", cron="30 2 * * *", zone="Asia/Tokyo", window="1h")
    assert re.search(r"Chosen: \w+ \d+ \w+ [\d: ]+ JST", typed.text)


def test_a_tag_of_many_schedules_leads_from_the_timeline_to_their_list(tmp_path: Path) -> None:
    with serving(tmp_path) as (client, _):
        for number in range(30):
            added(client, f"crowd/{number}", tags=["crowd"])
        assert "/ui/now?zoom=day&tag=crowd" in page_of(client, "/ui/now").links
        # There its lane leads on.
        assert "/?tag=crowd" in page_of(client, "/ui/now", tag="crowd").links


def test_a_definition_is_shown_with_its_own_characters(client: httpx.Client) -> None:
    added(client, "quoted", launcher={"kind": "log", "message": "it's <b> & é"})
    assert '"it\'s <b> & é"' in page_of(client, "/ui/schedule", id="quoted").text


def test_the_page_of_a_period_shows_every_fact(demo: httpx.Client) -> None:
    runs = demo.get("/schedules/demo%2Fpartner-feed/runs", params={"limit": 100}).json()["runs"]
    retried = next(run for run in runs if run["reason"] == "retry" and run["status"] == "SUCCESS")
    story = page_of(demo, "/ui/period", id="demo/partner-feed", at=retried["run_at"])
    why = demo.get(f"/schedules/demo%2Fpartner-feed/periods/{retried['run_at']}/why").json()
    assert [fact["code"] for fact in why["facts"]][-3:] == ["attempt", "started", "ended"]
    shown = {time["datetime"] for time in story.all("time")}
    for fact in why["facts"]:
        # Its instants are times that the switch of zones changes.
        assert set(INSTANT.findall(fact["sentence"])) <= shown
        assert all(part in story.text for part in INSTANT.split(fact["sentence"][1:]))
    assert f"{why['headline'][1:]}." in story.text
    assert why["headline"] == "succeeded after 2 attempts"
    assert {a.get("rel") for a in story.all("a")} >= {"prev", "next"}


def test_a_period_offers_to_run_it_again_and_one_ahead_does_not(demo: httpx.Client) -> None:
    run = demo.get("/schedules/demo%2Fbackup/runs", params={"limit": 1}).json()["runs"][0]
    links = page_of(demo, "/ui/period", id="demo/backup", at=run["run_at"]).links
    assert {"/ui/schedule/run?id=demo%2Fbackup", "/ui/schedule/pause?id=demo%2Fbackup"} <= set(links)
    (again,) = [link for link in links if link.startswith("/ui/schedule/backfill")]
    assert "1 period would run now." in page_of(demo, again).text
    # The next period itself may begin before its page is requested.
    coming = datetime.fromisoformat(demo.get("/schedules/demo%2Fbackup").json()["next_nominal_at"])
    ahead = (coming + timedelta(days=1)).isoformat()
    links = page_of(demo, "/ui/period", id="demo/backup", at=ahead).links
    assert "/ui/schedule/run?id=demo%2Fbackup" in links
    assert not [link for link in links if link.startswith("/ui/schedule/backfill")]
    problems = page_of(demo, "/ui/now").links
    assert [link for link in problems if link.startswith("/ui/schedule/backfill?id=demo%2Fexport")]


def test_a_counterfactual_that_ends_in_a_queue_says_so(demo: httpx.Client) -> None:
    runs = demo.get("/schedules/demo%2Fslow-import/runs", params={"limit": 100}).json()["runs"]
    skipped = [run["run_at"] for run in runs if run["status"] == "SKIPPED"]
    changes = {"id": "demo/slow-import", "if": "overlap=queue"}
    page = page_of(demo, "/ui/period", at=skipped[0], **changes)
    assert "queued It waits for the run of the period" in page.text
    assert "no period" not in page.text
    whole = page_of(demo, "/ui/schedule/what-if", **changes)
    assert re.search(r"[\d,]+ skipped would have been unfinished", whole.text)


def test_the_state_of_a_schedule_is_told_in_its_zone(demo: httpx.Client) -> None:
    page = page_of(demo, "/ui/schedule", id="demo/nightly-literal")
    assert re.search(r"last_start_at \w{3} \d+ \w{3} 02:30 CES?T", page.text)


def test_the_runs_of_one_status_are_shown_page_by_page(demo: httpx.Client) -> None:
    first = page_of(demo, "/ui/runs", status="SUCCESS")
    # The choices have the words of the list.
    assert "Pending Dispatched Running Success Failed Skipped Missed Unschedulable Cancelled" in first.text
    (following,) = [a["href"] for a in first.all("a") if a.get("rel") == "next"]
    second = page_of(demo, following)
    shown = [
        {a["href"] for a in page.all("a") if a["href"].startswith("/ui/period")} for page in (first, second)
    ]
    assert [len(each) for each in shown] == [50, 50]
    assert not shown[0] & shown[1]
    assert "failed" not in first.text.replace("retried after a failed attempt", "")


def test_the_demo_runs_harmless_commands_only(demo: httpx.Client) -> None:
    fields = {"cron_expr": "* * * * * *", "timezone": "UTC"}
    for name, command, status in (("hello", ["echo", "hello"], 200), ("evil", ["rm", "-rf", "x"], 400)):
        document = {"schedule_id": name, **fields, "launcher": {"kind": "process", "command": command}}
        assert demo.post("/schedules/upsert", json=document).status_code == status
    wait_for(lambda: "success" in page_of(demo, "/ui/schedule", id="hello").text)
    assert demo.delete("/schedules/hello").status_code == 204


def test_a_schedule_that_was_deleted_keeps_its_page(client: httpx.Client) -> None:
    added(client, "gone", cron_expr="30 2 * * *", timezone="Europe/Berlin", paused=True)
    assert client.delete("/schedules/gone").status_code == 204
    page = page_of(client, "/ui/schedule", id="gone")
    assert "deleted" in page.text
    assert "No further runs" in page.text
    # Nothing of it can be resumed, or changes with the clocks.
    for words in ("until the schedule is resumed", "Clock changes", "Run now"):
        assert words not in page.text


def test_the_page_of_the_api_has_every_operation(client: httpx.Client) -> None:
    page = page_of(client, "/docs")
    document = client.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert f"{method.upper()} {path}" in page.text
            assert operation["operationId"] in page.ids


def test_a_page_answers_head_requests(client: httpx.Client) -> None:
    for path in ("/", "/docs", "/ui/runs"):
        answer = client.head(path)
        assert (answer.status_code, answer.text) == (200, "")
