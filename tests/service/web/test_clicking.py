"""Every page and action in a real browser: clicked, typed, by keyboard alone, in both themes, on a phone."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from tests.service.auth import forge
from tests.service.axe import AxeMissingError, axe_source, violations
from tests.service.browser import CHROMIUM, MISSING
from tests.service.chromium import Chromium, chromium
from tests.service.server import serving
from tests.service.web.test_actions import token
from tests.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason=MISSING)]
FEED = "demo/partner-feed"
PAGES = (
    "/ui/now",
    "/",
    "/?sort=failures&state=failing",
    "/ui/schedule?id=demo%2Fbackup",
    "/ui/schedule/pause?id=demo%2Fbackup",
    "/ui/schedule?id=demo%2Flegacy-sync",
    "/ui/schedule/run?id=demo%2Fbackup",
    "/ui/schedule/resume?id=demo%2Flegacy-sync",
    "/ui/schedule/backfill?id=demo%2Fbackup",
    "/ui/schedule/edit?id=demo%2Fbackup",
    "/ui/schedule/edit?id=demo%2Fbackup&window=2h",
    "/ui/period?id=demo%2Fnightly-literal&at=2027-03-28T02:30",
    "/ui/runs",
    "/ui/now?zoom=month",
    "/ui/fleet",
    "/ui/fleet/apply?remedy=window",
    "/ui/dags",
    "/login",
    "/ui/audit",
    "/ui/workers",
    "/ui/playground?cron=30+2+*+*+*&zone=Europe%2FBerlin&window=1h",
    "/docs",
)
# Names of controls, labels, headings in order, landmarks, unique ids, a language, a title, texts of pictures,
# readable colours, and the width of the page.
CHECKS = (Path(__file__).parent / "checks.js").read_text()


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


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_is_accessible_in_both_themes_and_on_a_phone(
    browser: Chromium, demo: httpx.Client, width: int, dark: bool
) -> None:
    browser.show(width=width, dark=dark)
    faults = {}
    for path in PAGES:
        browser.open(url(demo, path))
        if found := browser.js(CHECKS):
            faults[path] = found
    assert faults == {}, json.dumps(faults, indent=1)


def found_pages(demo: httpx.Client) -> list[str]:
    """Return pages that depend on what was recorded: a failed period, a requested run, a worker's drain."""
    failed = demo.get("/runs", params={"status": "FAILED"}).json()["runs"][0]
    requested = demo.post("/schedules/demo%2Fheartbeat/run", json={}).json()
    worker = demo.get("/workers").json()["workers"][0]["worker"]
    name = quote(failed["schedule_id"], safe="")
    return [
        f"/ui/period?id={name}&at={failed['run_at']}&changes=overlap%3Dqueue",
        f"/ui/run?key={requested['idempotency_key']}",
        f"/ui/workers/drain?id={quote(worker, safe='')}",
    ]


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)], ids=["light", "dark on a phone"])
def test_axe_core_finds_no_violation_in_both_themes_and_on_a_phone(
    browser: Chromium, demo: httpx.Client, width: int, dark: bool
) -> None:
    try:
        axe_source()
    except AxeMissingError as error:
        pytest.skip(str(error))
    browser.show(width=width, dark=dark)
    found = {}
    for path in [*PAGES, *found_pages(demo)]:
        browser.open(url(demo, path))
        if faults := violations(browser):
            found[path] = faults
    assert found == {}, json.dumps(found, indent=1)


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


def test_another_policy_is_tried_on_a_past_period(browser: Chromium, demo: httpx.Client) -> None:
    runs = demo.get("/schedules/demo%2Fslow-import/runs", params={"limit": 30}).json()["runs"]
    skipped = next(run for run in runs if run["status"] == "SKIPPED")
    browser.open(url(demo, f"/ui/period?id=demo%2Fslow-import&at={quote(skipped['run_at'])}"))
    browser.type("input[name=if]", "overlap=allow")
    browser.follow("Replay")
    assert "if=overlap%3Dallow" in browser.path
    assert "Assumed" in browser.text or "would" in browser.text


def test_everything_is_reached_by_the_keyboard_alone(browser: Chromium) -> None:
    browser.press("?")
    assert browser.js("document.querySelector('dialog').open")
    browser.press("Escape")
    for keys, path in (("gn", "/ui/now"), ("gf", "/ui/fleet"), ("ga", "/ui/audit"), ("gs", "/")):
        for key in keys:
            browser.press(key)
        arrived(browser, path)
    browser.press("j")
    assert browser.js("document.activeElement.className") == "name"
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
        assert "ann/job" in tab.text
        assert "bob/job" not in tab.text
        tab.open(url(client, "/ui/workers"))
        assert "403" in tab.text
