"""The page of the API: every operation, every field, and examples that can be run from top to bottom."""

import json
import re
import shlex
from collections.abc import Iterator
from html import unescape

import httpx
import pytest

from kron.fronts.service.schedule_spec import SCHEDULE
from tests.service.executor import executing
from tests.service.server import serving
from tests.service.web.test_pages import page_of
from tests.waiting import wait_for

# Examples of runs and workers that exist only elsewhere: their keys and names are unknown here.
WITHOUT_A_TARGET = ("/runs/daily-2026-06-01/status", "/workers/drain")
LAST = 999


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with executing() as executor:
        settings = {"KRON_EXECUTOR": json.dumps({"kind": "http", "url": executor.url})}
        with serving(tmp_path_factory.mktemp("reference"), **settings) as (client, _):
            yield client


def commands_of(client: httpx.Client) -> list[list[str]]:
    blocks = re.findall(r"<pre[^>]*><code>(curl .*?)</code></pre>", client.get("/docs").text, re.DOTALL)
    return [shlex.split(unescape(block)) for block in blocks]


def sent(client: httpx.Client, words: list[str]) -> httpx.Response:
    """Send what a command says; the address is written in full."""
    assert words.pop(0) == "curl"
    method, url, headers, body = None, "", {}, None
    while words:
        word = words.pop(0)
        if word == "-X":
            method = words.pop(0)
        elif word == "-H":
            name, value = words.pop(0).split(": ")
            headers[name] = value
        elif word == "--data-binary":
            body = words.pop(0)
        else:
            url = word
    return client.request(method or ("GET" if body is None else "POST"), url, headers=headers, content=body)


def started(client: httpx.Client) -> bool | None:
    """Return True once the manual run of the examples has started; a busy machine takes its time."""
    runs = client.get("/schedules/daily-report/runs").json()["runs"]
    return any(run["started_at"] for run in runs) or None


def test_the_examples_of_the_page_work_from_top_to_bottom(client: httpx.Client) -> None:
    commands = commands_of(client)
    operations = [
        method for methods in client.get("/openapi.json").json()["paths"].values() for method in methods
    ]
    assert len(commands) == len(operations)
    # What deletes the schedule comes after what uses it.
    order = sorted(enumerate(commands), key=lambda each: LAST if "DELETE" in each[1] else each[0])
    for _, words in order:
        text = shlex.join(words)
        if text.endswith("/output"):
            wait_for(lambda: started(client))
        answer = sent(client, words)
        expected = (404,) if any(path in text for path in WITHOUT_A_TARGET) else (200, 201, 202, 204)
        assert answer.status_code in expected, (text, answer.text)


def test_the_page_lists_every_field_of_a_schedule_and_says_how_names_with_slashes_are_written(
    client: httpx.Client,
) -> None:
    page = page_of(client, "/docs")
    for word in SCHEDULE.words:
        assert f" {word} " in page.text, word
    for nested in (
        "window.duration",
        "constraints.only.hours",
        "policy.deadline",
        "launcher.url",
        "seed.salt",
    ):
        assert f" {nested} " in page.text, nested
    for name in ("paused", "until", "dry_run", "request_id", "fencing_token", "data_interval_start"):
        assert f" {name} " in page.text, name
    assert "write a slash in it as %2F" in page.text
    assert "..." not in " ".join(" ".join(words) for words in commands_of(client))
