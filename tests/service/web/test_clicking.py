"""Every page and action in a real browser: clicked, typed, by keyboard alone, in both themes, on a phone."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx
import pytest

from kron.fronts.service.auth.middleware import NEEDS
from tests.service.auth import forge
from tests.service.axe import MISSING as AXE_MISSING
from tests.service.browser import CHROMIUM, MISSING
from tests.service.chromium import Chromium, chromium
from tests.service.server import serving
from tests.service.web.accessible import faults_of, has_axe
from tests.service.web.test_actions import token
from tests.service.web.test_pages import added
from tests.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason=MISSING)]
FEED = "demo/partner-feed"
PAGES = (
    "/ui/now",
    "/",
    "/?sort=failures&state=failing",
    "/ui/schedule?id=demo%2Fbackup",
    "/ui/schedule/pause?id=demo%2Fbackup",
    "/ui/schedule?id=demo%2Flegacy-sync&done=edited&undo=1",
    "/ui/schedule/run?id=demo%2Fbackup",
    "/ui/schedule/resume?id=demo%2Flegacy-sync",
    "/ui/schedule/backfill?id=demo%2Fbackup",
    "/ui/schedule/edit?id=demo%2Fbackup",
    "/ui/schedule/what-if?id=demo%2Fslow-import&if=overlap%3Dallow",
    "/ui/schedule/what-if?id=demo%2Fbackup&if=colour%3Dred",
    "/ui/schedule/edit?id=demo%2Fbackup&window=2h",
    "/ui/period?id=demo%2Fnightly-literal&at=2027-03-28T02:30",
    "/ui/runs",
    "/ui/now?zoom=month",
    "/ui/fleet?done=3&at=1",
    "/ui/fleet/apply?remedy=window",
    "/ui/dags",
    "/login",
    "/ui/audit",
    "/ui/workers",
    "/ui/playground?cron=30+2+*+*+*&zone=Europe%2FBerlin&window=1h",
    "/docs",
    "/ui/now?zoom=hour",
    "/ui/now?zoom=week&at=2026-01-01T00:00:00Z",
    "/?search=nothing+has+this+name",
    "/ui/schedule/backfill?id=demo%2Fbackup&from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z&only=all",
    "/ui/fleet/apply?remedy=hash",
    "/ui/playground",
    "/ui/playground?cron=61+*+*+*+*",
    "/ui/period?id=demo%2Fbackup&at=lunch",
    "/nowhere",
)
# Those of recorded things, and those of a service that runs DAGs (test_dag_pages).
FOUND = {"/ui/period", "/ui/run", "/ui/workers/drain"}
OF_DAGS = {"/ui/dag", "/ui/dag/run", "/ui/dag/catchup"}
# A stream of events, and a file to download.
NO_PAGES = {"/ui/live", "/ui/run/output"}
REFUSED = re.compile(r"the server responded with a status of (404|400) ")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with serving(tmp_path_factory.mktemp("demo"), "--demo", KRON_LOG_LEVEL="info") as (client, _):
        yield client


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with chromium(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def browser(tab: Chromium, demo: httpx.Client) -> Iterator[Chromium]:
    """Give the browser on the first page; whatever it complains about fails the test."""
    tab.show()
    tab.console.clear()
    tab.open(url(demo, "/"))
    yield tab
    assert tab.console == []


def url(client: httpx.Client, path: str) -> str:
    return f"{str(client.base_url).rstrip('/')}{path}"


def arrived(browser: Chromium, path: str) -> None:
    """Wait until the browser has loaded a page."""
    wait_for(lambda: browser.path.startswith(path) and browser.js("document.readyState === 'complete'"))


def schedule(client: httpx.Client, name: str) -> dict[str, object]:
    found: dict[str, object] = client.get(f"/schedules/{quote(name, safe='')}").json()
    return found


def found_pages(demo: httpx.Client) -> list[str]:
    """Return pages that depend on what was recorded: a failed period, a requested run, a worker's drain."""
    failed = demo.get("/runs", params={"status": "FAILED"}).json()["runs"][0]
    requested = demo.post("/schedules/demo%2Fheartbeat/run", json={}).json()
    worker = demo.get("/workers").json()["workers"][0]["worker"]
    name = quote(failed["schedule_id"], safe="")
    return [
        f"/ui/period?id={name}&at={failed['run_at']}&if=overlap%3Dqueue",
        f"/ui/run?key={requested['idempotency_key']}",
        f"/ui/workers/drain?id={quote(worker, safe='')}",
    ]


def test_every_page_of_the_service_is_looked_at() -> None:
    looked_at = {urlsplit(path).path for path in (*PAGES, *FOUND, *OF_DAGS)}
    pages = {path for (method, path), need in NEEDS.items() if method == "GET" and need.page}
    assert looked_at - {"/docs", "/login", "/nowhere"} == pages - NO_PAGES


@pytest.mark.parametrize("width", [1280, 390], ids=["wide", "phone"])
def test_every_page_is_accessible_in_both_themes(browser: Chromium, demo: httpx.Client, width: int) -> None:
    for number in range(4):
        added(demo, f"full/{number}", cron_expr="17 4 * * *")
    pages = [*PAGES, *found_pages(demo)]
    assert {urlsplit(path).path for path in pages[len(PAGES) :]} == FOUND
    faults = faults_of(browser, url(demo, ""), pages, width=width)
    assert faults == {}, json.dumps(faults, indent=1)
    # That pages were not found, or were asked wrongly, is all a browser may say.
    browser.console[:] = [line for line in browser.console if not REFUSED.search(line)]
    if not has_axe():
        pytest.skip(f"{AXE_MISSING}: other rules were checked")


def test_run_now_leads_to_the_page_of_the_run(browser: Chromium) -> None:
    browser.follow("demo/heartbeat")
    browser.follow("Run now")
    browser.follow("main button")
    assert browser.path.startswith("/ui/run?key=")
    browser.wait_for_text("success")


def test_a_pause_has_a_reason_and_an_end_and_a_resume_shows_what_would_start(
    browser: Chromium, demo: httpx.Client
) -> None:
    browser.follow("demo/quarter-end")
    browser.follow("Pause")
    browser.type("input[name=reason]", "the books are closed")
    browser.choose("select#for", "1 day")
    browser.follow("main button")
    assert "Paused. No run starts until the schedule is resumed." in browser.text
    paused = schedule(demo, "demo/quarter-end")
    assert (paused["paused"], paused["paused_because"]) == (True, "the books are closed")
    assert paused["paused_until"] is not None
    browser.follow("Resume")
    assert "Resume" in browser.text
    browser.follow("main button")
    assert "Resumed." in browser.text
    assert schedule(demo, "demo/quarter-end")["paused"] is False


def test_a_backfill_is_counted_first_and_its_progress_is_shown(browser: Chromium, demo: httpx.Client) -> None:
    runs = demo.get("/schedules/demo%2Fbackup/runs", params={"limit": 30}).json()["runs"]
    first, last = runs[-1]["run_at"], runs[0]["run_at"]
    browser.follow("demo/backup")
    browser.follow("Backfill")
    browser.type("input[name=from]", first)
    browser.type("input[name=to]", last)
    browser.choose("select#only", "all")
    browser.follow("main button")
    browser.follow("main form[method=post] button")
    wait_for(lambda: browser.js("Boolean(document.querySelector('progress'))"), lambda: browser.text)


def test_an_edit_shows_its_plan_before_it_is_saved(browser: Chromium, demo: httpx.Client) -> None:
    browser.follow("demo/export")
    browser.follow("Edit")
    text = str(browser.js("document.querySelector('textarea').value"))
    assert "*/10 * * * *" in text
    browser.type("textarea", text.replace("*/10 * * * *", "*/20 * * * *"))
    browser.follow("main button")
    assert schedule(demo, "demo/export")["cron_expr"] == "*/10 * * * *"
    browser.follow("Save")
    assert "Saved." in browser.text
    assert schedule(demo, "demo/export")["cron_expr"] == "*/20 * * * *"
    browser.follow("Undo")
    assert schedule(demo, "demo/export")["cron_expr"] == "*/20 * * * *"
    browser.follow("Save")
    assert schedule(demo, "demo/export")["cron_expr"] == "*/10 * * * *"


def test_a_suggestion_of_the_fleet_is_planned_applied_and_undone(
    browser: Chromium, demo: httpx.Client
) -> None:
    names = [f"full/{number}" for number in range(9)]
    for name in names:
        added(demo, name, cron_expr="17 4 * * *")
    browser.follow("Fleet")
    browser.follow("Plan and apply to 9 schedules")
    assert browser.path == "/ui/fleet/apply?remedy=window"
    assert "The change can be undone." in browser.text
    browser.follow("Apply to 9 schedules")
    assert "9 schedules changed." in browser.text
    windows = [schedule(demo, name)["window"] for name in names]
    assert windows == [{"mode": "after", "duration": "10m"}] * 9
    browser.follow("Undo")
    assert "9 schedules changed." in browser.text
    assert [schedule(demo, name)["window"] for name in names] == [{"mode": "after", "duration": "0s"}] * 9
    # The other suggestion, from the page that knows the fleet as it is again.
    browser.follow('a[href="/ui/fleet/apply?remedy=hash"]')
    browser.follow("Apply to 9 schedules")
    assert {schedule(demo, name)["cron_expr"] for name in names} == {"H 4 * * *"}


def test_a_zone_is_chosen_once_for_all_pages(browser: Chromium, demo: httpx.Client) -> None:
    shown = "document.querySelector('tbody time').textContent"
    browser.open(url(demo, "/ui/schedule?id=demo%2Fnightly-literal"))
    assert browser.js(shown).endswith(("CET", "CEST"))
    browser.choose("select.zone", "UTC")
    assert browser.js(shown).endswith("UTC")
    browser.open(url(demo, "/ui/schedule?id=demo%2Fnightly-close"))
    assert browser.js(shown).endswith("UTC")
    browser.open(url(demo, "/ui/now"))
    assert "Times of the axis in UTC" in browser.text
    browser.choose("select.zone", "Your zone")
    assert "Times of the axis in your zone" in browser.text
    browser.choose("select.zone", "Schedule's zone")
    assert "Times of the axis in UTC" in browser.text
    # The times of sentences and of the page follow, and those of another year keep it.
    browser.zone("Asia/Kolkata")
    browser.choose("select.zone", "Your zone")
    browser.open(url(demo, "/ui/period?id=demo%2Fnightly-literal&at=2031-01-15T01:30:00Z"))
    sentence = "document.querySelector('.chain li:nth-child(2)').innerText"
    assert re.search(r"Wed,? 15 Jan 2031.* 07:00:00 GMT\+5:30", browser.js(sentence)), browser.js(sentence)
    assert browser.js("document.querySelector('.clock').innerText").endswith("GMT+5:30")
    browser.choose("select.zone", "Schedule's zone")
    browser.zone("")


def test_the_timeline_is_zoomed_and_panned_and_returns_to_now(browser: Chromium) -> None:
    browser.follow("Now")
    present = "Boolean(document.querySelector('.timeline .present'))"
    for zoom in ("Hour", "Week", "Month", "Day"):
        browser.follow(zoom)
        assert browser.path == f"/ui/now?zoom={zoom.lower()}"
        assert browser.js(present)
    browser.follow("Earlier")
    browser.follow("Earlier")
    assert browser.path.startswith("/ui/now?zoom=day&at=")
    assert not browser.js(present)
    browser.follow("main nav a:last-child")
    assert browser.js(present)
    # The line of now moves with the time.
    browser.follow("Hour")
    place = "document.querySelector('.timeline .present').getAttribute('x1')"
    before = browser.js(place)
    wait_for(lambda: browser.js(place) != before, lambda: before)


def test_schedules_are_found_filtered_and_sorted(browser: Chromium) -> None:
    browser.press("/")
    browser.type("input[name=search]", "nightly")
    browser.follow("Filter")
    assert "2 found" in browser.text
    names = "[...document.querySelectorAll('main tbody .name')].map((each) => each.innerText)"
    assert browser.js(names) == ["demo/nightly-close", "demo/nightly-literal"]
    browser.follow("Schedules")
    browser.choose("select[name=state]", "Failing")
    browser.choose("select[name=sort]", "By failures")
    browser.follow("Filter")
    assert "state=failing" in browser.path
    assert "demo/legacy-sync" in browser.js(names)
    assert browser.js("document.querySelectorAll('main tbody .spark rect').length") > 0


def test_the_playground_follows_what_is_typed_and_its_address_holds_it(
    browser: Chromium, demo: httpx.Client
) -> None:
    browser.follow("Playground")
    browser.type("input#cron", "30 2 * * mon-fri")
    browser.type("input#zone", "Europe/Berlin")
    browser.type("input#window", "1h")
    browser.wait_for_text("At 02:30 on Monday to Friday")
    wait_for(lambda: "window=1h" in browser.path, lambda: browser.path)
    copies = "[...document.querySelectorAll('#answer details')].map((each) => each.textContent)"
    wait_for(lambda: "Europe/Berlin" in browser.js(copies)[0], lambda: browser.text)
    texts = dict(zip(("YAML", "JSON", "Python", "crontab", "Kubernetes"), browser.js(copies), strict=True))
    assert all(text.startswith(name) for name, text in texts.items())
    assert "kind:" in texts["Kubernetes"]
    browser.click("Copy")
    copied = "document.querySelector('#answer button.copy').textContent"
    wait_for(lambda: browser.js(copied) in ("Copied", "Selected"), lambda: browser.js(copied))
    # Another viewer who opens the address sees the same.
    address, answer = browser.path, browser.js("document.querySelector('#answer .lead').innerText")
    browser.open(url(demo, "/"))
    browser.open(url(demo, address))
    assert browser.js("document.querySelector('#answer .lead').innerText") == answer
    assert browser.js("document.querySelector('#cron').value") == "30 2 * * mon-fri"


def test_another_policy_is_tried_on_a_past_period(browser: Chromium, demo: httpx.Client) -> None:
    runs = demo.get("/schedules/demo%2Fslow-import/runs", params={"limit": 30}).json()["runs"]
    skipped = next(run for run in runs if run["status"] == "SKIPPED")
    browser.open(url(demo, f"/ui/period?id=demo%2Fslow-import&at={quote(skipped['run_at'])}"))
    browser.type("input[name=if]", "overlap=allow")
    browser.follow("Replay")
    assert "if=overlap%3Dallow" in browser.path
    assert "Assumed" in browser.text or "would" in browser.text


def test_another_policy_is_tried_on_all_periods_of_a_schedule(browser: Chromium) -> None:
    browser.follow("demo/slow-import")
    browser.follow("What if")
    browser.follow("overlap=allow")
    found = re.search(r"(\d+) of (\d+) periods would have ended otherwise", browser.text)
    assert found is not None, browser.text
    assert 0 < int(found[1]) <= int(found[2])
    assert re.search(r"\d+ skipped would have been executed", browser.text)
    # Each period of the list leads to the story of what would have become of it.
    browser.follow("main tbody a")
    assert "if=overlap%3Dallow" in browser.path
    assert browser.js("document.querySelector('input#if').value") == "overlap=allow"


def test_everything_is_reached_by_the_keyboard_alone(browser: Chromium) -> None:
    browser.press("?")
    assert browser.js("document.querySelector('dialog').open")
    browser.press("Escape")
    for keys, path in (
        ("gn", "/ui/now"),
        ("gr", "/ui/runs"),
        ("gd", "/ui/dags"),
        ("gf", "/ui/fleet"),
        ("gs", "/"),
    ):
        for key in keys:
            browser.press(key)
        arrived(browser, path)
    focused = "document.activeElement.innerText"
    browser.press("j")
    assert browser.js("document.activeElement.className") == "name"
    first = browser.js(focused)
    browser.press("j")
    assert browser.js(focused) != first
    browser.press("k")
    assert browser.js(focused) == first
    browser.press("Enter")
    arrived(browser, "/ui/schedule?id=")
    browser.press("Tab")
    assert browser.js("document.activeElement.className") == "skip-link"


def test_live_updates_have_a_switch_where_a_page_is_live(browser: Chromium, demo: httpx.Client) -> None:
    wait_for(lambda: browser.js("Number(document.body.dataset.refreshed) >= 2"), lambda: browser.console)
    browser.click("Live")
    assert browser.js("document.querySelector('.live').innerText") == "Live off"
    assert browser.js("document.querySelectorAll('[data-live]').length") == 3
    browser.open(url(demo, "/docs"))
    assert not browser.js("Boolean(document.querySelector('.live'))")


def test_a_page_follows_the_changes_of_others_without_a_reload(browser: Chromium, demo: httpx.Client) -> None:
    browser.open(url(demo, "/ui/schedule?id=demo%2Fbackup"))
    wait_for(lambda: browser.js("document.body.dataset.live") == "stream", lambda: browser.console)
    assert (
        demo.post("/schedules/pause", json={"schedule_id": "demo/backup", "paused": True}).status_code == 200
    )
    browser.wait_for_text("no run starts until the schedule is resumed")
    assert (
        demo.post("/schedules/pause", json={"schedule_id": "demo/backup", "paused": False}).status_code == 200
    )


def test_a_login_returns_to_its_page_and_no_address_leads_to_another_tenant(
    tab: Chromium, tmp_path: Path
) -> None:
    with serving(tmp_path, KRON_JWT_SECRET=forge.SECRET) as (client, _):
        for user in ("ann", "bob"):
            document = {"schedule_id": f"{user}/job", "cron_expr": "0 0 1 1 *", "timezone": "UTC",
                        "launcher": {"kind": "log", "message": "x"}}  # fmt: skip
            headers = {"Authorization": f"Bearer {token(user)}"}
            assert client.post("/schedules/upsert", json=document, headers=headers).status_code == 200
        tab.open(url(client, "/ui/schedule?id=ann%2Fjob"))
        assert tab.path.startswith("/login?next=")
        tab.type("main input:not([type=hidden])", token("ann"))
        tab.follow("main button")
        assert tab.path == "/ui/schedule?id=ann%2Fjob"
        for path in (
            "/ui/schedule?id=bob%2Fjob",
            "/ui/schedule/edit?id=bob%2Fjob",
            "/ui/schedule/run?id=bob%2Fjob",
            "/ui/period?id=bob%2Fjob&at=2026-01-01T00:00:00Z",
        ):
            tab.open(url(client, path))
            assert "404" in tab.text, path
        tab.open(url(client, "/"))
        tab.press("?")
        shortcuts = tab.js("document.querySelector('dialog').innerText")
        # No key leads to a page that she may not see.
        assert "Fleet" in shortcuts
        assert "Workers" not in shortcuts
        tab.press("Escape")
        for width in (390, 820):
            tab.show(width=width)
            # Who, live and the zone stand beside the name of the service, above one row of the pages.
            places = "['.brand', '.caller button', '.live', '.zone', '.top nav']"
            middles = "(box) => [box.top + box.height / 2, box.right]"
            boxes = tab.js(f"{places}.map((each) => document.querySelector(each).getBoundingClientRect())"
                           f".map({middles})")  # fmt: skip
            *first, pages = boxes
            assert max(first)[0] - min(first)[0] < 8, boxes
            assert pages[0] > max(first)[0] + 15
            assert max(right for _, right in first) <= width
        tab.show()
        assert "ann/job" in tab.text
        assert "bob/job" not in tab.text
        tab.open(url(client, "/ui/workers"))
        assert "403" in tab.text
        tab.follow("Sign in with another token")
        assert tab.path == "/login"


def test_an_edit_that_is_sent_after_the_session_is_not_lost(tab: Chromium, tmp_path: Path) -> None:
    with serving(tmp_path, KRON_JWT_SECRET=forge.SECRET) as (client, _):
        document = {"schedule_id": "ann/job", "cron_expr": "0 0 1 1 *", "timezone": "UTC",
                    "launcher": {"kind": "log", "message": "x"}}  # fmt: skip
        headers = {"Authorization": f"Bearer {token('ann')}"}
        assert client.post("/schedules/upsert", json=document, headers=headers).status_code == 200

        def sign_in() -> None:
            tab.type("main input:not([type=hidden])", token("ann"))
            tab.follow("main button")

        # Those of other tests are of the same host.
        tab.forget_cookies()
        tab.open(url(client, "/ui/schedule/edit?id=ann%2Fjob"))
        sign_in()
        edited = str(tab.js("document.querySelector('textarea').value")).replace("0 0 1", "0 5 1")
        tab.type("textarea", edited)
        cookies = tab.forget_cookies()
        tab.click("Show the plan")
        tab.wait_for_text("You are signed out, and nothing was sent.")
        assert tab.js("document.querySelector('textarea').value") == edited
        # As if another tab had signed in.
        tab.remember_cookies(cookies)
        tab.follow("Show the plan")
        tab.follow("Save")
        assert "Saved." in tab.text
        found = client.get("/schedules/ann%2Fjob", headers=headers).json()
        assert found["cron_expr"] == "0 5 1 1 *"
