"""The pages without a mouse, and without JavaScript, in a real browser."""

import re
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest

from tests.service.browser import CHROMIUM, MISSING
from tests.service.chromium import Chromium
from tests.service.server import serving
from tests.service.web.test_clicking import FEED, arrived, schedule, url
from tests.service.web.test_pages import added
from tests.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason=MISSING)]
# More stops than any of these pages has before the wanted one.
MAX_STOPS = 150
NAME = """(() => { const it = document.activeElement;
  return it.getAttribute("aria-label") || it.labels?.[0]?.innerText || it.innerText || ""; })()"""
# Whether what has the focus is seen: it has a size, and something is drawn around it.
IS_SEEN = """(() => { const it = document.activeElement, box = it.getBoundingClientRect();
  return box.width > 0 && getComputedStyle(it).outlineStyle !== "none"; })()"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with serving(tmp_path_factory.mktemp("demo"), "--demo", KRON_LOG_LEVEL="info") as (client, _):
        yield client


def reach(browser: Chromium, name: str) -> None:
    """Press Tab until the control whose name has a pattern has the focus."""
    for _ in range(MAX_STOPS):
        browser.press("Tab")
        if re.fullmatch(name, " ".join(browser.js(NAME).split())):
            assert browser.js(IS_SEEN), f"{name!r} has the focus, and nothing shows it"
            return
    raise AssertionError(f"{name!r} is not reached by Tab on {browser.path}: {browser.text}")


def enter(browser: Chromium, name: str) -> None:
    """Reach a control, press Enter, and wait for the page that it leads to."""
    reach(browser, name)
    browser.js("window.before = true")
    browser.press("Enter")
    wait_for(
        lambda: browser.js("!window.before && document.readyState === 'complete'"),
        lambda: f"{name} on {browser.path}: {browser.text}",
    )


def page_of(browser: Chromium, demo: httpx.Client, name: str) -> None:
    browser.open(url(demo, f"/ui/schedule?id={quote(name, safe='')}"))


def test_a_schedule_is_run_paused_resumed_and_edited_by_the_keyboard(
    browser: Chromium, demo: httpx.Client
) -> None:
    page_of(browser, demo, "demo/quarter-end")
    enter(browser, "Run now")
    enter(browser, "Run now")
    arrived(browser, "/ui/run?key=")
    page_of(browser, demo, "demo/quarter-end")
    enter(browser, "Pause")
    reach(browser, "Reason.*")
    browser.press("x")
    enter(browser, "Pause")
    assert schedule(demo, "demo/quarter-end")["paused_because"] == "x"
    enter(browser, "Resume")
    enter(browser, "Resume")
    assert schedule(demo, "demo/quarter-end")["paused"] is False
    enter(browser, "Edit")
    reach(browser, "Definition.*")
    text = str(browser.js("document.activeElement.value"))
    browser.type("textarea", text.replace("0 18 LW", "0 19 LW"))
    enter(browser, "Show the plan")
    enter(browser, "Save")
    assert str(schedule(demo, "demo/quarter-end")["cron_expr"]).startswith("0 19 LW")
    enter(browser, "Undo")
    enter(browser, "Save")
    assert str(schedule(demo, "demo/quarter-end")["cron_expr"]).startswith("0 18 LW")


def test_a_backfill_is_planned_and_started_by_the_keyboard(browser: Chromium, demo: httpx.Client) -> None:
    runs = demo.get("/schedules/demo%2Fbackup/runs", params={"limit": 3}).json()["runs"]
    page_of(browser, demo, "demo/backup")
    enter(browser, "Backfill")
    for label, text in (("From.*", runs[-1]["run_at"]), ("To.*", runs[0]["run_at"])):
        reach(browser, label)
        for key in text:
            browser.press(key)
    reach(browser, "Periods")
    # The first letter chooses an option of a list.
    browser.press("a")
    enter(browser, "Show what would run")
    enter(browser, "Backfill 2 periods")
    assert browser.js("Boolean(document.querySelector('progress'))"), browser.text


def test_a_suggestion_a_drain_and_a_counterfactual_are_reached_by_the_keyboard(
    browser: Chromium, demo: httpx.Client
) -> None:
    names = [f"full/{number}" for number in range(9)]
    for name in names:
        added(demo, name, cron_expr="17 4 * * *")
    browser.open(url(demo, "/ui/fleet"))
    enter(browser, "Plan and apply to 9.*")
    enter(browser, "Apply to 9.*")
    assert "9 schedules changed." in browser.text
    enter(browser, "Undo")
    assert schedule(demo, names[0])["window"] == {"mode": "after", "duration": "0s"}
    page_of(browser, demo, "demo/slow-import")
    enter(browser, "What if")
    enter(browser, "overlap=allow")
    assert "would have ended otherwise" in browser.text
    browser.open(url(demo, "/ui/workers"))
    enter(browser, "Drain .*")
    enter(browser, "Drain")
    browser.wait_for_text("drain requested")
    enter(browser, "Resume .*")
    browser.wait_for_text("active")


def test_without_javascript_every_page_is_read_and_acted_on(browser: Chromium, demo: httpx.Client) -> None:
    browser.scripts(run=False)
    failed = demo.get("/runs", params={"status": "FAILED"}).json()["runs"][0]
    period = f"/ui/period?id={quote(failed['schedule_id'], safe='')}&at={failed['run_at']}"
    for path, words in (
        ("/ui/now", "Needs attention"),
        ("/", "demo/heartbeat"),
        ("/?search=nightly", "2 found"),
        (f"/ui/schedule?id={quote(FEED, safe='')}", "Every 2 minutes"),
        (period, "Failed"),
        ("/ui/runs", "started on schedule"),
        ("/ui/fleet", "Worst minutes"),
        ("/ui/audit", "create"),
        ("/ui/workers", "active"),
        ("/ui/playground?cron=0+9+*+*+*", "At 09:00 every day"),
        ("/docs", "/schedules/upsert"),
    ):
        browser.open(url(demo, path))
        assert words.lower() in browser.text.lower(), path
        # Nothing that needs a script is offered.
        assert not browser.js("document.querySelectorAll('.live, .copy, select.zone, dialog').length"), path
    page_of(browser, demo, "demo/export")
    browser.follow("Pause")
    browser.type("input[name=reason]", "no script")
    browser.follow("main button")
    assert schedule(demo, "demo/export")["paused_because"] == "no script"
    browser.follow("Resume")
    browser.follow("main button")
    assert schedule(demo, "demo/export")["paused"] is False
