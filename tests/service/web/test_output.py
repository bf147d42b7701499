"""The output of a run on its page: colours of a terminal, head and tail, search, download, and live tail."""

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kron.fronts.service.responses import RunOutput
from kron.fronts.service.web.output import FIRST, LAST, html_of, output_page
from tests.service.browser import CHROMIUM
from tests.service.browser import MISSING as NO_CHROMIUM
from tests.service.chromium import chromium
from tests.service.server import serving
from tests.service.web.accessible import faults_of
from tests.service.webpage import Webpage
from tests.waiting import wait_for

SH = "/bin/sh"


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("plain <b>&", "plain &lt;b&gt;&amp;"),
        ("\x1b[31mred\x1b[0m not", '<span class="a31">red</span> not'),
        (
            "\x1b[1;32mok\x1b[22m still\x1b[39m",
            '<span class="a1 a32">ok</span><span class="a32"> still</span>',
        ),
        ("\x1b[38;5;9mbright\x1b[m", '<span class="a91">bright</span>'),
        ("\x1b[38;2;250;10;10mtrue\x1b[m", '<span class="a91">true</span>'),
        ("\x1b[48;5;4mground\x1b[49m.", '<span class="a44">ground</span>.'),
        ("\x1b[2K\x1b[1Gcleared \x1b]0;title\x07on", "cleared on"),
        (" 10 %\r 99 %\r100 %\nnext\r\nlast", "100 %\nnext\nlast"),
        ("bell\x07 null\x00 cut \x1b[", "bell null cut ["),
        ("\x1b[38;5mhalf \x1b[999mno", "half no"),
        (" 99 %\r100 %\r", "100 %"),
        pytest.param(f"\x1b[{'9' * 5_000}mlong", "long", id="a long number"),
        pytest.param(f"\x1b[{'1;' * 50_000}mmany", "many", id="many codes"),
    ],
)
def test_a_text_for_a_terminal_is_shown_in_its_colours(text: str, html: str) -> None:
    assert html_of(text) == html


def a_document(output: bytes) -> RunOutput:
    """Return the output of an ended attempt."""
    return {
        "schedule_id": "a", "period_id": "2026-01-01T00:00:00Z", "idempotency_key": "k", "attempt": 1,
        "attempts": 1, "status": "SUCCESS", "ended": True, "output": b64encode(output).decode(),
        "offset": len(output), "note": None, "pid": None, "code": None, "cpu_s": None, "max_rss_kb": None,
        "output_lost": None, "bytes": None,
    }  # fmt: skip


def test_a_search_ends_when_its_processor_time_is_spent() -> None:
    # It once took four seconds, and a gigabyte for a list of all lines.
    page = output_page(a_document(b"ab\n" * (5 << 20)), "b")
    assert page.found is not None
    assert page.found == page.searched
    assert 0 < page.found < 5 << 20
    whole = output_page(a_document(b"ab\n" * 1_000), "b")
    assert (whole.found, whole.searched) == (1_000, None)


def test_a_long_output_is_shown_with_its_first_and_last_bytes() -> None:
    page = output_page(a_document(b"a" * FIRST + b"b" * 1_234 + b"c" * LAST), "")
    assert page.html == "a" * FIRST + "\n[... 1,234 bytes here: download them ...]\n" + "c" * LAST
    assert page.size == FIRST + LAST + 1_234


def test_lines_are_found_by_their_plain_text_in_any_case() -> None:
    page = output_page(a_document(b"one\n\x1b[31mERR\x1b[0mor <2>\nthree\nerror 4\n"), "error")
    assert page.found == 2
    assert page.html == (
        '<span class="number">2</span> ERRor &lt;2&gt;\n<span class="number">4</span> error 4\n'
    )


# --- real processes ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Path]]:
    folder = tmp_path_factory.mktemp("output")
    with serving(folder, KRON_ALLOWED_COMMANDS=SH) as (client, _):
        yield client, folder


def started(client: httpx.Client, name: str, script: str, **fields: object) -> str:
    """Run a script by a schedule that is never due, and return the address of its page."""
    launcher = {"kind": "process", "command": [SH, "-c", script], **fields}
    document = {"schedule_id": name, "cron_expr": "0 0 1 1 *", "timezone": "UTC", "launcher": launcher}
    assert client.post("/schedules/upsert", json=document).status_code == 200
    run = client.post(f"/schedules/{name}/run", json={}).json()
    return f"/ui/run?key={run['idempotency_key']}"


def shown(client: httpx.Client, path: str, text: str) -> str:
    """Wait until a page has a text, and return the page."""

    def page() -> str | None:
        found = client.get(path).text
        return found if text in found else None

    return wait_for(page, lambda: f"{text} on {path}")


@pytest.mark.slow
def test_the_output_of_a_process_is_on_the_page_of_its_run(service: tuple[httpx.Client, Path]) -> None:
    client, folder = service
    script = "printf '\\033[32mdone\\033[0m <b>\\n'; echo failed >&2; exit 3"
    path = started(client, "coloured", script)
    page = shown(client, path, "exit status 3")
    assert '<span class="a32">done</span> &lt;b&gt;\nfailed\n</pre>' in page
    assert Webpage(page).faults == []
    found = client.get(f"{path}&find=FAIL").text
    assert "1 line has <code>FAIL</code>" in found
    assert '<span class="number">2</span> failed' in found
    download = next(link for link in Webpage(page).links if "/ui/run/output" in link)
    answer = client.get(download)
    assert answer.content == b"\x1b[32mdone\x1b[0m <b>\nfailed\n"
    assert answer.headers["content-disposition"].startswith("attachment; ")
    assert answer.headers["content-type"].startswith("text/plain")
    # Readable by the owner of the service alone.
    (file,) = (folder / "processes" / "logs").rglob("*.log")
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_the_output_of_a_running_process_is_shown_as_it_is_written(
    service: tuple[httpx.Client, Path], tmp_path: Path
) -> None:
    client, _ = service
    go = tmp_path / "go"
    path = started(client, "tailed", f"echo first; until test -e {go}; do sleep 0.05; done; echo second")
    page = shown(client, path, "first\n</pre>")
    assert 'data-tail="yes"' in page
    assert "6 bytes so far" in Webpage(page).text
    go.touch()
    page = shown(client, path, "second\n</pre>")
    page = shown(client, path, 'data-tail="no"')
    assert "13 bytes ·" in Webpage(page).text


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
def test_a_browser_follows_the_output_finds_lines_and_reads_every_colour(
    service: tuple[httpx.Client, Path], tmp_path: Path
) -> None:
    client, _ = service
    more, end = tmp_path / "more", tmp_path / "end"
    codes = [*range(30, 38), *range(40, 48), 1, 2, 3, 4]
    coloured = "".join(f"\\033[{code}mcolour {code}\\033[0m\\n" for code in codes)
    script = (
        f"printf '{coloured}'; until [ -e {more} ]; do sleep 0.05; done; echo a second line; "
        f"until [ -e {end} ]; do sleep 0.05; done; echo the last line"
    )
    document = {"schedule_id": "tailed", "cron_expr": "0 0 1 1 *", "timezone": "UTC",
                "launcher": {"kind": "process", "command": [SH, "-c", script]}}  # fmt: skip
    assert client.post("/schedules/upsert", json=document).status_code == 200
    key = client.post("/schedules/tailed/run").json()["idempotency_key"]
    base = str(client.base_url).rstrip("/")
    with chromium(tmp_path) as tab:
        tab.open(f"{base}/ui/run?key={key}")
        tab.wait_for_text("colour 47")
        faults = faults_of(tab, base, [f"/ui/run?key={key}"], width=390)
        assert faults == {}, faults
        more.touch()
        tab.wait_for_text("a second line")
        end.touch()
        tab.wait_for_text("the last line")
        tab.wait_for_text("success")
        tab.type("input[name=find]", "LAST line")
        tab.follow("Find")
        assert "1 line has LAST line" in tab.text
        assert "colour 31" not in tab.text
        path = tab.js("document.querySelector('a[download]').getAttribute('href')")
        assert client.get(path).content.endswith(b"the last line\n")
        assert tab.console == []


def test_head_and_tail_are_kept_and_earlier_attempts_have_their_own(
    service: tuple[httpx.Client, Path],
) -> None:
    client, _ = service
    script = "echo attempt $KRON_ATTEMPT; seq 3000; test $KRON_ATTEMPT = 2"
    document = {
        "schedule_id": "again",
        "cron_expr": "* * * * * *",
        "timezone": "UTC",
        "remaining": 1,
        "retry_delay": "1s",
        "launcher": {"kind": "process", "command": [SH, "-c", script], "max_output": 1_024},
    }
    assert client.post("/schedules/upsert", json=document).status_code == 200
    (run,) = wait_for(lambda: client.get("/schedules/again/runs").json()["runs"])
    path = f"/ui/period?id=again&at={run['run_at']}"
    page = shown(client, path, "attempt 2\n")
    assert "Output of attempt 2" in Webpage(page).text
    # While it runs, all that it has written is shown.
    assert "\n3000\n</pre>" in shown(client, path, "[... 12879 bytes left out ...]")
    first = client.get(f"{path}&attempt=1").text
    assert "attempt 1\n" in first
    download = next(link for link in Webpage(first).links if "/ui/run/output" in link)
    assert client.get(download).text.startswith("attempt 1\n")


@pytest.mark.slow
def test_the_api_gives_the_output_and_says_why_there_is_none(service: tuple[httpx.Client, Path]) -> None:
    client, _ = service
    shown(client, started(client, "told", "echo hello"), "hello\n</pre>")
    document = client.get("/schedules/told/output").json()
    assert (document["output"], document["ended"], document["note"]) == (
        b64encode(b"hello\n").decode(), True, None,
    )  # fmt: skip
    shown(client, started(client, "silent", "true"), "success</span>")
    document = client.get("/schedules/silent/output").json()
    assert document["note"] == (
        "no output is kept here: it wrote none, was not a process, is too old, "
        "or ran on another host, where kron logs has it"
    )
    assert client.get("/schedules/nobody/output").status_code == 404
    assert client.get("/schedules/told/output?period=yesterday").status_code == 400


def test_a_search_of_a_large_output_says_how_much_was_searched(service: tuple[httpx.Client, Path]) -> None:
    client, _ = service
    path = started(client, "large", "yes ab | head -c 15000000", max_output=16 << 20)
    shown(client, path, "success</span>")
    assert "among the first" in client.get(f"{path}&find=b").text
