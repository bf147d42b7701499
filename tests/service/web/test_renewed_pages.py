"""A live page in a real browser: parts that come and go, and what its viewer has scrolled and focused."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from tests.service.browser import CHROMIUM, MISSING
from tests.service.chromium import Chromium
from tests.service.server import serving
from tests.service.web.test_clicking import url
from tests.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason=MISSING)]
# Writes a line ten times a second until the folder is gone.
TALKING = "i=0; while [ -e talking ]; do i=$((i+1)); echo line $i; sleep 0.1; done"
LINES = "document.querySelector('pre.output').textContent.split('\\n').length"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("live")


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[httpx.Client]:
    with serving(folder, KRON_ALLOWED_COMMANDS="/bin/sh") as (client, _):
        yield client
        (folder / "talking").unlink(missing_ok=True)


def added(client: httpx.Client, name: str, **fields: object) -> None:
    launcher = {"kind": "process", "command": ["/bin/sh", "-c", "exit 0"]}
    document = {"cron_expr": "0 0 1 1 *", "timezone": "UTC", "launcher": launcher, **fields}
    document["schedule_id"] = name
    assert client.post("/schedules/upsert", json=document).status_code == 200


def renewed(browser: Chromium) -> None:
    """Wait until the page has renewed itself twice: what was asked before the first came after."""
    refreshed = "Number(document.body.dataset.refreshed ?? 0)"
    before = browser.js(refreshed)
    wait_for(lambda: browser.js(refreshed) >= before + 2, lambda: browser.console)


def talking(client: httpx.Client, folder: Path, name: str) -> str:
    """Start a run that writes lines, and return its page."""
    (folder / "talking").touch()
    # A process is started in a folder of its own.
    script = TALKING.replace("-e talking", f"-e {folder / 'talking'}")
    added(client, name, launcher={"kind": "process", "command": ["/bin/sh", "-c", script]})
    key = client.post(f"/schedules/{name}/run", json={}).json()["idempotency_key"]
    return f"/ui/run?key={key}"


def test_the_actions_of_a_schedule_that_is_deleted_leave_its_open_page(
    browser: Chromium, client: httpx.Client
) -> None:
    added(client, "gone")
    browser.open(url(client, "/ui/schedule?id=gone"))
    assert "Run now" in browser.text
    assert client.delete("/schedules/gone").status_code == 204
    wait_for(lambda: "deleted" in browser.text, lambda: browser.text)
    assert "Run now" not in browser.text


def test_the_output_of_a_run_appears_on_a_page_that_was_open_before_it_started(
    browser: Chromium, client: httpx.Client
) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=10)
    launcher = {"kind": "process", "command": ["/bin/sh", "-c", "echo the first line"]}
    cron = f"{at.second} {at.minute} {at.hour} {at.day} {at.month} *"
    added(client, "soon", cron_expr=cron, launcher=launcher)
    browser.open(url(client, f"/ui/period?id=soon&at={at:%Y-%m-%dT%H:%M:%SZ}"))
    assert "Output" not in browser.text
    browser.wait_for_text("the first line")


def test_the_tail_of_an_output_goes_on_while_it_has_the_keyboard_focus(
    browser: Chromium, client: httpx.Client, folder: Path
) -> None:
    browser.open(url(client, talking(client, folder, "focused")))
    browser.wait_for_text("line 1")
    browser.click("pre.output")
    focused = "document.activeElement.className"
    assert browser.js(focused) == "output"
    before = browser.js(LINES)
    wait_for(lambda: browser.js(LINES) > before + 20, lambda: browser.js(LINES))
    assert browser.js(focused) == "output"
    # It is at its end, and stays where it is scrolled to.
    its = "document.querySelector('pre.output')."
    wait_for(lambda: browser.js(f"{its}scrollHeight") > 600)
    assert browser.js(f"{its}scrollTop + {its}clientHeight + 8 >= {its}scrollHeight")
    browser.js(f"{its}scrollTop = 30")
    renewed(browser)
    assert browser.js(f"{its}scrollTop") == 30
    (folder / "talking").unlink()
    wait_for(lambda: not browser.js("Boolean(document.querySelector('[data-tail=yes]'))"))


def test_a_picture_that_was_scrolled_stays_there_when_the_page_renews_itself(
    browser: Chromium, client: httpx.Client
) -> None:
    added(client, "scrolled", cron_expr="* * * * * *")
    browser.show(width=390)
    browser.open(url(client, "/ui/schedule?id=scrolled"))
    browser.js("document.querySelector('.sideways').scrollLeft = -120")
    assert browser.js("document.querySelector('.sideways').scrollLeft") == -120
    renewed(browser)
    assert browser.js("document.querySelector('.sideways').scrollLeft") == -120


def test_what_is_typed_and_not_sent_stays_when_the_page_renews_itself(
    browser: Chromium, client: httpx.Client
) -> None:
    added(client, "typed", cron_expr="* * * * * *")
    browser.open(url(client, "/ui/schedule?id=typed"))
    browser.type("input[name=before]", "2026-11-19T")
    browser.choose("select[name=status]", "Failed")
    browser.js("document.activeElement.blur()")
    shown = "document.querySelector('#coming').innerText"
    before = browser.js(shown)
    renewed(browser)
    assert browser.js(shown) != before
    values = "['input[name=before]', 'select[name=status]'].map((each) => document.querySelector(each).value)"
    assert browser.js(values) == ["2026-11-19T", "FAILED"]
