"""One next start: page, API, CLI and embedded runner give the same answer for awkward schedules."""

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

import kron
from kron.cli.main import GOOD, run
from kron.core.time.instant import instant_text, milliseconds_of
from kron.testing import SimulatedClock
from tests.service.server import serving

# The system clock decides what is next, so every schedule starts in a far year.
FAR = "2098-01-01T00:00:00Z"
JITTERED = {"cron_expr": "0 6 * * *", "policy": {"start_at": FAR, "jitter_ms": 30_000}}
# Fields of a schedule document, its next period, its next start, and the periods passed over.
SCHEDULES: dict[str, tuple[dict[str, Any], str | None, str | None, int]] = {
    "plain": ({"policy": {"start_at": FAR}}, "2098-01-01T06:00:00Z", "2098-01-01T06:00:00Z", 0),
    "excluded": (
        {
            "window": {"mode": "after", "duration": "1h"},
            "constraints": {"only": {"dow": ["sat"]}},
            "policy": {"start_at": FAR},
        },
        "2098-01-01T06:00:00Z",
        "2098-01-04T06",
        3,
    ),
    "holiday": (
        {
            "constraints": {"avoid": {"calendars": {"new-year": ["2098-01-01..2098-01-02"]}}},
            "policy": {"start_at": FAR},
        },
        "2098-01-01T06:00:00Z",
        "2098-01-03T06:00:00Z",
        2,
    ),
    "jitter": (JITTERED, "2098-01-01T06:00:00Z", "2098-01-01T0", 0),
    "gap": (
        {
            "cron_expr": "30 2 * * *",
            "timezone": "Europe/Berlin",
            "policy": {"start_at": "2098-03-30T00:00:00Z"},
        },
        "2098-03-31T00:30:00Z",
        "2098-03-31T00:30:00Z",
        0,
    ),
    "over": ({"policy": {"end_at": "2001-01-01T00:00:00Z"}}, None, None, 0),
    "never": (
        {"policy": {"start_at": FAR}, "constraints": {"only": {"dates": ["2020-01-01"]}}},
        "2098-01-01T06:00:00Z",
        None,
        0,
    ),
    "suspended": ({"policy": {"start_at": FAR, "suspend": True}}, "2098-01-01T06:00:00Z", None, 0),
    "paused": ({"policy": {"start_at": FAR}, "paused": True}, "2098-01-01T06:00:00Z", None, 0),
    "break": ({"policy": {"start_at": FAR}}, "2098-01-01T06:00:00Z", "2098-01-03T06:00:00Z", 2),
}
UNTIL = "2098-01-02T12:00:00Z"


def document_of(name: str) -> dict[str, Any]:
    plain = {"cron_expr": "0 6 * * *", "timezone": "UTC"}
    policy = {"catchup": "none", **SCHEDULES[name][0]["policy"]}
    return {**plain, **SCHEDULES[name][0], "policy": policy, "schedule_id": name}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("next")
    with serving(folder, KRON_ALLOWED_COMMANDS="/bin/sh") as (client, _):
        for name in SCHEDULES:
            launcher = {"kind": "process", "command": ["/bin/sh", "-c", ":"]}
            answer = client.post("/schedules/upsert", json={**document_of(name), "launcher": launcher})
            assert answer.status_code == 200, answer.text
            assert answer.json()["next_run_at"] == SCHEDULES[name][1]
        pause = {"schedule_id": "break", "paused": True, "until": UNTIL}
        assert client.post("/schedules/pause", json=pause).status_code == 200
        yield client


async def embedded(name: str) -> tuple[str | None, str | None, int]:
    """Return the answer of `kron.Runner` for the same definition, at the present time."""
    document = document_of(name)
    parts: dict[str, Any] = {key: document[key] for key in ("window", "constraints") if key in document}
    when = {"schedule": document["cron_expr"], "timezone": document["timezone"]}
    whole: dict[str, Any] = {"identity": name, **when, **parts, "policy": document["policy"]}
    job = kron.Job.from_dict(whole)
    runner = kron.Runner("memory://", clock=SimulatedClock(datetime.now(UTC)))

    async def work() -> None:
        raise AssertionError("nothing starts here")

    runner.add(job, work)
    async with runner:
        if name in ("paused", "break"):
            until = datetime.fromisoformat(UNTIL) if name == "break" else None
            await runner.pause(name, until=until)
        answer = await runner.next_start(name)
    times = (answer.next_nominal_at, answer.next_start_at)
    nominal, start = (None if at is None else milliseconds_of(at) for at in times)
    nominal_text = None if nominal is None else instant_text(nominal).replace(".000Z", "Z")
    return nominal_text, None if start is None else instant_text(start), answer.passed_over


def shown_on_pages(service: httpx.Client, name: str) -> tuple[str | None, str | None]:
    """Return the next start in the list of schedules, and the first in the schedule's own table of starts."""
    listed = re.findall(r'datetime="(2098[^"]+)"', service.get("/", params={"search": name}).text)
    page = service.get("/ui/schedule", params={"id": name}).text
    section = page.partition('<section id="coming"')[2].partition("</section>")[0]
    row = section.partition("<tbody>")[2].partition("</tr>")[0]
    # The last instant of a row is the start, where it differs from the period's nominal time.
    (*_, own) = [None, *re.findall(r'datetime="([^"]+)"', row)]
    return min(listed, default=None), own


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.slow
def test_page_api_cli_and_embedded_runner_agree_on_the_next_start(
    name: str, service: httpx.Client, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    _, nominal, start, passed_over = SCHEDULES[name]
    shown = service.get(f"/schedules/{name}").json()
    answer = (shown["next_nominal_at"], shown["next_start_at"], shown["passed_over"])
    assert (answer[0], answer[2], shown["next_run_at"]) == (nominal, passed_over, nominal)
    assert answer[1] is None if start is None else answer[1].startswith(start.removesuffix("Z"))
    if not (shown["paused"] or shown["suspended"]):
        assert shown["preview"][:1] == ([] if start is None else [answer[1]])
    (listed,) = service.get("/schedules", params={"search": name, "limit": 1}).json()["schedules"]
    assert (listed["next_nominal_at"], listed["next_start_at"], listed["passed_over"]) == answer
    assert asyncio.run(embedded(name)) == answer
    assert shown_on_pages(service, name) == (answer[1], answer[1])
    # The command line.
    monkeypatch.setenv("KRON_SERVER", str(service.base_url))
    for words in (("status",), ("schedules", "list")):
        assert run((*words, "--search", name, "--json")) == GOOD
        (first, *_) = json.loads(capfd.readouterr().out)["schedules"]
        assert (first["next_nominal_at"], first["next_start_at"], first["passed_over"]) == answer
        assert run((*words, "--search", name, "--utc")) == GOOD
        lines = capfd.readouterr().out.splitlines()
        (line, *_) = [each for each in lines if each.startswith(f"{name} ")]
        assert start is None or (answer[1] or "") in line


def test_the_task_status_of_the_scheduler_has_the_next_start(tmp_path: Path) -> None:
    """`kron.Scheduler` reads its zone's wall times; a stopped scheduler starts nothing."""

    async def story() -> None:
        clock = SimulatedClock(datetime(2026, 3, 28, 12, tzinfo=UTC))
        scheduler = kron.Scheduler("memory://", clock=clock, timezone="Europe/Berlin")

        async def work() -> None:
            return None

        await scheduler.initialize([("gap", "30 2 * * *", work, timedelta(0))])
        status = scheduler.tasks["gap"]
        expected = datetime(2026, 3, 30, 0, 30, tzinfo=UTC)
        assert (status.next_nominal_at, status.next_start_at) == (expected, expected)
        await scheduler.stop()
        assert scheduler.tasks["gap"].next_start_at is None

    asyncio.run(story())
