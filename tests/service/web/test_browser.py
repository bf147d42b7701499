"""The pages in a real browser: no message on its console, every width, and both colour schemes."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import httpx
import pytest

from kron.fronts.service.web.render import assets
from tests.service.browser import CHROMIUM, DARK, MISSING, look, picture, size_of
from tests.service.chromium import Chromium, chromium
from tests.service.server import serving
from tests.service.web.test_pages import HOSTILE, WORK, YEARLY
from tests.waiting import wait_for

# Frames of several widths; the title has the width of the page in each of them.
WIDTHS = (360, 700, 970, 1200)
FRAMES = "".join(f'<iframe src="page.html" width="{width}" height="800"></iframe>' for width in WIDTHS)
FRAME = f"""<!doctype html><title></title>{FRAMES}
<script>
const widthOf = (frame) => frame.contentDocument.documentElement.scrollWidth;
addEventListener("load", () => {{ document.title = [...document.querySelectorAll("iframe")].map(widthOf); }});
</script>"""
# Forbidden by a strict policy.
FORBIDDEN = """<!doctype html>
<meta http-equiv="content-security-policy" content="default-src 'none'">
<style>p { color: red }</style>"""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason=MISSING)]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with serving(tmp_path_factory.mktemp("demo"), "--demo", KRON_LOG_LEVEL="info") as (client, _):
        for name in HOSTILE:
            answer = client.post("/schedules/upsert", json={**YEARLY, "schedule_id": name})
            assert answer.status_code == 200
        yield client


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with chromium(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


def address(client: httpx.Client, path: str) -> str:
    return f"{str(client.base_url).rstrip('/')}{path}"


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        pytest.param("/", "demo/heartbeat", id="overview"),
        pytest.param("/ui/schedule?id=demo%2Foffice-hours", "Every 30 minutes", id="schedule"),
        pytest.param("/ui/schedule?id=%3Cscript%3Ealert(1)%3C%2Fscript%3E", "&lt;script&gt;", id="hostile"),
        pytest.param("/ui/period?id=demo%2Fnightly-literal&at=2027-03-28T02:30", "dst_gap", id="period"),
        pytest.param("/ui/now", "demo/heartbeat", id="now"),
        pytest.param("/ui/playground?cron=0+9+*+*+*&window=1h", "Next window", id="playground"),
        pytest.param("/ui/audit", "demo/heartbeat", id="audit"),
        pytest.param("/ui/workers", "with all 64 shards", id="workers"),
        pytest.param("/ui/fleet", "Worst minutes", id="fleet"),
        pytest.param("/ui/runs", "demo/heartbeat", id="runs"),
        pytest.param("/docs", "/schedules/upsert", id="the API"),
        pytest.param("/nowhere", "Not Found", id="no page"),
    ],
)
def test_a_page_leaves_no_message_on_the_console(
    demo: httpx.Client, tab: Chromium, path: str, shown: str
) -> None:
    tab.console.clear()
    tab.open(address(demo, path))
    # A live page has refreshed itself.
    is_over = "document.body.dataset.refresh === '0' || Number(document.body.dataset.refreshed) > 0"
    wait_for(lambda: tab.js(is_over), lambda: tab.console)
    assert shown in tab.js("document.documentElement.outerHTML")
    # That a page was not found is all a browser may say.
    assert [line for line in tab.console if "404 (Not Found)" not in line] == []


def test_a_message_on_the_console_would_be_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(FORBIDDEN)
    assert any("Content Security Policy" in line for line in look(page.as_uri(), tmp_path).console)


@pytest.mark.parametrize("size", [(1280, 900), (390, 844)], ids=["wide", "phone"])
def test_a_page_has_a_light_and_a_dark_face(
    demo: httpx.Client, tmp_path: Path, size: tuple[int, int]
) -> None:
    url = address(demo, "/docs")
    light = picture(url, tmp_path, "light.png", size)
    dark = picture(url, tmp_path, "dark.png", size, DARK)
    assert size_of(light) == size_of(dark) == size
    assert light != dark


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/ui/now",
        "/ui/workers",
        "/ui/playground?cron=*+*+*+*+*",
        "/ui/runs",
        "/ui/schedule?id=" + "x" * 490,
    ],
)
def test_no_page_is_wider_than_its_window(demo: httpx.Client, tmp_path: Path, path: str) -> None:
    check_width(demo, tmp_path, path)


def test_no_word_of_a_description_or_an_error_is_wider_than_a_phone(tab: Chromium, tmp_path: Path) -> None:
    word = "x" * 490
    with serving(tmp_path, KRON_ALLOWED_COMMANDS="/bin/sh") as (client, _):
        launcher = {"kind": "process", "command": ["/bin/sh", "-c", f"echo {word}; exit 1"]}
        document = {**YEARLY, "schedule_id": "long", "description": word, "launcher": launcher}
        document = {name: value for name, value in document.items() if name not in WORK}
        assert client.post("/schedules/upsert", json=document).status_code == 200
        key = client.post("/schedules/long/run", json={}).json()["idempotency_key"]
        wait_for(lambda: client.get("/schedules/long/runs").json()["runs"][0]["status"] == "FAILED")
        tab.show(width=390)
        for path in ("/ui/schedule?id=long", f"/ui/run?key={key}", "/ui/now", "/ui/runs", "/ui/audit"):
            tab.open(address(client, path))
            assert tab.js("document.documentElement.scrollWidth") == 390, path
        tab.show()


def test_a_printed_page_has_what_is_read_and_nothing_that_is_clicked(
    demo: httpx.Client, tab: Chromium
) -> None:
    tab.on_paper()
    for path, read in (("/ui/now", "demo/heartbeat"), ("/ui/schedule?id=demo%2Fbackup", "Every hour")):
        tab.open(address(demo, path))
        assert read in tab.text
        for clicked in ("Playground", "Run now", "Live", "Schedule's zone"):
            assert clicked not in tab.text, (path, clicked)
    tab.show()


def check_width(client: httpx.Client, folder: Path, path: str) -> None:
    """Check that a page is as wide as its window, in windows of several widths."""
    text = client.get(path, headers={"accept": "text/html"}).text
    style = re.search(r'rel="stylesheet" href="([^"]+)"', text)
    assert style is not None
    (folder / "style.css").write_text(client.get(style[1]).text)
    (folder / "page.html").write_text(text.replace(style[1], "style.css"))
    frame = folder / "frame.html"
    frame.write_text(FRAME)
    dom = look(frame.as_uri(), folder, "--allow-file-access-from-files").dom
    assert f"<title>{','.join(map(str, WIDTHS))}</title>" in dom, dom


PAGE = b"""<!doctype html><html lang="en"><body data-refresh="1"><header class="top"></header>
<main><p id="clock" data-live>old</p></main><script src="/static/live.js"></script></body></html>"""


class Answer(NamedTuple):
    """A response of the server below."""

    body: bytes
    status: int = 200


SCRIPTS = {
    "/static/live.js": assets()["live.js"].body,
    "/static/off.js": b"document.querySelector('.live').click()",
    "/static/keys.js": assets()["keys.js"].body,
    "/static/play.js": assets()["play.js"].body,
    "/static/type.js": b"""
const field = document.querySelector("input");
field.value = "0 9 * * *";
field.dispatchEvent(new Event("input", { bubbles: true }));
""",
    "/static/press.js": b"""
const event = (key) => new KeyboardEvent("keydown", { key, bubbles: true });
const press = (key) => document.activeElement.dispatchEvent(event(key));
const focused = () => document.activeElement.id;
const seen = [];
press("j"); seen.push(focused()); press("j"); seen.push(focused());
press("j"); press("k"); seen.push(focused());
press("/"); seen.push(focused()); press("j"); seen.push(focused()); document.activeElement.blur();
press("?"); seen.push(document.querySelector("dialog").open ? "help" : "no help");
document.querySelector("dialog button").click();
const zone = document.querySelector("select.zone");
for (const value of ["utc", "viewer", "schedule"]) {
  zone.value = value;
  zone.dispatchEvent(new Event("change"));
  seen.push(document.querySelector("time").textContent);
}
document.dispatchEvent(new Event("kron-refreshed"));
document.title = seen.join("|");
""",
}


@contextmanager
def answering(first: Answer, then: Answer) -> Iterator[str]:
    """Serve a page once and answer otherwise after that, with the script of live updates."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            if self.path == "/ui/live":
                self.send_event()
                return
            script = SCRIPTS.get(self.path)
            answer = first if asked.count("/") == 1 and self.path == "/" else then
            body = script or answer.body
            self.send_response(200 if script or self.path == "/login" else answer.status)
            self.send_header("Content-Type", "text/javascript" if script else "text/html")
            self.send_header("Location", "/login")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def send_event(self) -> None:
            """Say once that something has changed, and close the stream for a long time."""
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write(b"retry: 1000000\nevent: changed\ndata: 1\n\n")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(("status", "seen"), [(503, ">No response</button>"), (303, ">Signed out</button>")])
def test_a_page_that_cannot_be_renewed_does_not_pretend_to_be_live(
    status: int, seen: str, tmp_path: Path
) -> None:
    with answering(Answer(PAGE), Answer(b"<h1>Sign in</h1>", status)) as url:
        assert seen in look(url, tmp_path).dom


def test_an_event_of_the_stream_renews_a_page_that_would_not_renew_itself_for_long(tab: Chromium) -> None:
    rarely = PAGE.replace(b'data-refresh="1"', b'data-refresh="100000"')
    with answering(Answer(rarely), Answer(rarely.replace(b">old<", b">new<"))) as url:
        tab.open(url)
        wait_for(lambda: "new" in tab.text, lambda: tab.text)


EDITED = b"""<!doctype html><html lang="en"><body data-refresh="1"><header class="top"></header>
<main><div id="definition" data-live><p>new words</p><details><summary>All</summary>x</details></div></main>
<script src="/static/live.js"></script></body></html>"""
BEFORE = EDITED.replace(b"new words", b"old words").replace(b"<details>", b"<details open>")
# Turns live updates off at once; the page stays as it was.
OFF = b"<script src='/static/off.js'></script></body>"


def test_a_refreshed_definition_keeps_its_details_open(tmp_path: Path) -> None:
    with answering(Answer(BEFORE), Answer(EDITED)) as url:
        dom = look(url, tmp_path).dom
    assert "new words" in dom
    assert re.search(r"<details open", dom)


def test_a_new_entry_before_an_open_one_does_not_take_its_place(tmp_path: Path) -> None:
    new = b"<details><summary>Retry run</summary>y</details>"
    with answering(Answer(BEFORE), Answer(EDITED.replace(b"<details>", new + b"<details>"))) as url:
        dom = look(url, tmp_path).dom
    assert re.search(r"<details><summary>Retry run", dom)
    assert re.search(r"<details open[^>]*><summary>All", dom)


def test_live_updates_that_are_off_do_not_read_like_a_paused_schedule(tmp_path: Path) -> None:
    with answering(Answer(BEFORE.replace(b"</body>", OFF)), Answer(EDITED)) as url:
        dom = look(url, tmp_path).dom
    assert ">Live off</button>" in dom
    assert "old words" in dom
    assert "Paused" not in dom


KEYS = b"""<!doctype html><html lang="en"><title>keys</title><body data-refresh="0">
<header class="top"></header><main><input id="search" data-key="/">
<p><time datetime="2026-06-01T10:00:00Z" title="Mon 1 Jun 10:00 UTC">noon</time></p>
<table class="list"><tbody><tr><th><a id="one" href="#1">1</a></th></tr>
<tr><th><a id="two" href="#2">2</a></th></tr></tbody></table></main>
<script src="/static/keys.js"></script><script src="/static/press.js"></script></body></html>"""


def test_rows_search_help_and_zone_are_reached_by_keys(tmp_path: Path) -> None:
    with answering(Answer(KEYS), Answer(KEYS)) as url:
        seen = look(url, tmp_path)
    title = re.search("<title>(.*)</title>", seen.dom)
    assert title is not None
    *focus, utc, viewer, written = title[1].split("|")
    assert focus == ["one", "two", "one", "search", "search", "help"]
    assert (utc, written) == ("Mon 1 Jun 10:00 UTC", "noon")
    assert re.match(r"Mon,? 1 Jun", viewer)


TYPED = b"""<!doctype html><html lang="en"><body data-refresh="0"><header class="top"></header><main>
<form id="typed" action="/ui/playground"><input name="cron"><input name="zone"></form>
<div id="answer">nothing yet</div></main><script src="/static/play.js"></script>
<script src="/static/type.js"></script></body></html>"""


def test_the_playground_answers_while_it_is_typed_into(tmp_path: Path) -> None:
    answered = TYPED.replace(b"nothing yet", b"At 09:00 every day")
    with answering(Answer(TYPED), Answer(answered)) as url:
        assert "At 09:00 every day" in look(url, tmp_path).dom


def test_a_playground_whose_session_has_ended_leads_to_the_login(tab: Chromium) -> None:
    with answering(Answer(TYPED), Answer(b"<h1>Sign in</h1>", 303)) as url:
        tab.open(url)
        wait_for(lambda: tab.path == "/login", lambda: tab.path)
