"""Hostile requests and connections, each found to be costly once, as a hostile tenant sends them."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from urllib.parse import quote

import httpx

SCHEDULE: dict[str, object] = {"cron_expr": "0 9 * * *", "timezone": "UTC", "launcher": {"kind": "log"}}
# Constraints that reject every time of each window, after 64 draws.
NEVER: dict[str, object] = {
    **SCHEDULE,
    "cron_expr": "* * * * *",
    "window": {"mode": "after", "duration": "10m"},
    "constraints": {"only": {"dates": ["2001-01-01"]}},
}
# Each fifth Monday that is 29 February.
RARE: dict[str, object] = {**SCHEDULE, "cron_expr": "0 0 29 2 1#5"}
NEW_YORK = "America/New_York"
# Takes a client and the prefix of its tenant's schedules.
Request = Callable[[httpx.Client, str], httpx.Response]


def prepare(client: httpx.Client, prefix: str = "") -> None:
    """Create the schedules and the DAG that the attacks use."""
    for name, document in (("never", NEVER), ("rare", RARE)):
        body = {**document, "schedule_id": f"{prefix}{name}"}
        client.post("/schedules/upsert", json=body).raise_for_status()
    name = _dag_of(prefix)
    client.put(f"/workflows/{name}/versions/1", json=_large_dag(2_000, prefix)).raise_for_status()
    if client.get("/dags").is_success:
        # Its runs stay open: no task of a paused one starts.
        client.post(f"/dags/{name}/pause", json={"paused": True}).raise_for_status()
        for day in range(1, 4):
            client.post(f"/dags/{name}/runs", json={"logical_date": f"2026-06-{day:02}"}).raise_for_status()


def _dag_of(prefix: str) -> str:
    return f"{prefix.rstrip('/') or 'open'}.large"


def _large_dag(tasks: int, prefix: str) -> dict[str, object]:
    nodes = [{"id": f"t{number}", "type": "log", "dependsOn": []} for number in range(tasks)]
    return {"user_id": prefix.rstrip("/") or "mallory", "nodes": nodes, "triggers": []}


def _deploy(tasks: int) -> Request:
    """Return a request that deploys a DAG of many tasks, the last of which is wrong, so nothing is stored."""
    headers = {"content-type": "application/json"}

    @cache
    def body(prefix: str) -> bytes:
        document = _large_dag(tasks, prefix)
        nodes = document["nodes"]
        assert isinstance(nodes, list)
        nodes[-1] = {**nodes[-1], "type": "lgo"}
        return json.dumps(document, separators=(",", ":")).encode()

    return lambda client, prefix: client.put(
        f"/workflows/{_dag_of(prefix)}/versions/2", content=body(prefix), headers=headers
    )


def _triggers(client: httpx.Client, prefix: str) -> httpx.Response:
    """Ask what a workflow would define whose every schedule finds no time."""
    schedule = {
        "cron_expr": "* * * * * *",
        "window": {"mode": "after", "duration": "1000s"},
        "constraints": {"only": {"dates": ["2001-01-01"]}},
    }
    triggers = [{"id": f"t{number}", "type": "schedule_based", "schedule": schedule} for number in range(100)]
    document = {"user_id": prefix.rstrip("/") or "mallory", "nodes": [], "triggers": triggers}
    name = f"{prefix.rstrip('/') or 'open'}.never"
    return client.put(f"/workflows/{name}/versions/1?dry_run=true", json=document)


def _dag_page(client: httpx.Client, prefix: str) -> httpx.Response:
    return client.get("/ui/dag", params={"id": _dag_of(prefix)})


def _dry_upsert(client: httpx.Client, prefix: str) -> httpx.Response:
    document = {**NEVER, "schedule_id": f"{prefix}never", "cron_expr": "* * * * * *"}
    return client.post("/schedules/upsert?dry_run=true", json=document)


def _page_of(path: str, **query: str) -> Request:
    """Return a request of a page; `NAME` stands for a schedule of the caller."""

    def send(client: httpx.Client, prefix: str) -> httpx.Response:
        values = {name: value.replace("NAME", f"{prefix}never") for name, value in query.items()}
        return client.get(path, params=values)

    return send


def _edit(client: httpx.Client, prefix: str) -> httpx.Response:
    """Ask for the plan of an edit that searches in vain in each of its windows."""
    definition = {
        "identity": f"{prefix}never",
        "schedule": "*/8 * * * * *",
        "timezone": "UTC",
        "window": {"mode": "around", "duration": "1000s"},
        "constraints": {"only": {"dates": ["2001-01-01"]}},
        "launcher": {"kind": "log"},
    }
    path = f"/ui/schedule/edit?id={quote(f'{prefix}never', safe='')}"
    fields = {"definition": json.dumps(definition), "etag": "*"}
    return client.post(path, data=fields, headers={"sec-fetch-site": "same-origin"})


def _preview(document: dict[str, object], count: int) -> Request:
    # Encoded once: an attacker spends as little as it can.
    body = json.dumps(document, separators=(",", ":")).encode()
    headers = {"content-type": "application/json"}
    return lambda client, _: client.post(f"/preview?count={count}", content=body, headers=headers)


def _upsert(document: dict[str, object]) -> Request:
    """Return a request that is refused, so that nothing is stored."""
    body = json.dumps({**document, "schedule_id": "x"}, separators=(",", ":")).encode()
    headers = {"content-type": "application/json"}
    return lambda client, _: client.post("/schedules/upsert", content=body, headers=headers)


def _references(count: int) -> Request:
    """Open references to secrets that nothing closes; a launcher has room for 6,500."""
    launcher = {"kind": "http", "url": "http://127.0.0.1/", "headers": {"a": "${secret:" * count}}

    def send(client: httpx.Client, prefix: str) -> httpx.Response:
        document = {**SCHEDULE, "schedule_id": f"{prefix}x", "launcher": launcher}
        return client.post("/schedules/upsert", json=document)

    return send


def _lines(count: int) -> Request:
    """Return a request whose every line is wrong in a way that is costly to describe."""
    lines = "\n".join(
        json.dumps({**SCHEDULE, "schedule_id": f"x{number}", "timezone": f"Eurpe/Brlin{number}"})
        for number in range(count)
    )
    headers = {"content-type": "application/x-ndjson"}
    return lambda client, _: client.post("/schedules/bulk", content=lines.encode(), headers=headers)


def _definitions(count: int) -> Request:
    jobs = [
        {"identity": f"x{number}", "schedule": "@daily", "timezone": f"Eurpe/Brlin{number}"}
        for number in range(count)
    ]
    body = json.dumps({"jobs": jobs}).encode()
    headers = {"content-type": "application/json"}
    return lambda client, _: client.post("/definitions", content=body, headers=headers)


def _form(fields: int) -> Request:
    form = {"content-type": "application/x-www-form-urlencoded"}
    return lambda client, _: client.post("/login", content=b"a=1&" * fields, headers=form)


def _dry_run(client: httpx.Client, prefix: str) -> httpx.Response:
    years = {"from": "0001-01-01T00:00:00Z", "to": "9999-12-31T00:00:00Z", "dry_run": True}
    return client.post(f"/schedules/{quote(f'{prefix}rare', safe='')}/backfill", json=years)


def _get(client: httpx.Client, prefix: str) -> httpx.Response:
    return client.get(f"/schedules/{quote(f'{prefix}never', safe='')}")


def _what_if(client: httpx.Client, prefix: str) -> httpx.Response:
    """Ask what a definition would have done that searches a thousand windows at once, in vain."""
    window = json.dumps({"mode": "before", "duration": "16m"})
    changes = ["schedule=* * * * * *", f"window={window}"]
    path = f"/schedules/{quote(f'{prefix}never', safe='')}/periods/latest/why"
    return client.get(path, params={"if": changes})


def _cookie(path: str) -> Request:
    return lambda client, _: client.get(path, headers={"cookie": 'a="' + "\\" * 30_000 + '"'})


def _bulk(lists: int) -> Request:
    """Return a request of a hundred lines that need fifty times their length in memory."""
    line = json.dumps({**SCHEDULE, "x": [[]] * lists}, separators=(",", ":")).encode() + b"\n"

    def lines() -> Iterator[bytes]:
        for _ in range(100):
            yield line

    headers = {"content-type": "application/x-ndjson"}
    return lambda client, _: client.post("/schedules/bulk", content=lines(), headers=headers)


# As many values as a line may have; together 1.5 GB.
bulk = _bulk(99_000)


def _requests() -> dict[str, tuple[Request, tuple[int, ...]]]:
    """Return each request with the statuses that its answer may have."""
    return {
        "a cookie of backslashes": (_cookie("/"), (200,)),
        "a thousand leap days": (
            _preview({**SCHEDULE, "cron_expr": "7 3 29 2 *", "timezone": NEW_YORK}, 1_000),
            (200,),
        ),
        "a thousand repeated times": (
            _preview({**SCHEDULE, "cron_expr": "30 1 * 11 0#1", "timezone": NEW_YORK}, 1_000),
            (200,),
        ),
        # Within the budget or beyond it: that depends on the machine.
        "a preview that finds no time": (_preview(NEVER, 1_000), (200, 422)),
        "45,000 unknown fields": (
            _preview({**SCHEDULE, **{f"f{n}": 1 for n in range(45_000)}}, 5),
            (400,),
        ),
        "45,000 unknown policies": (
            _preview({**SCHEDULE, "policy": {f"f{n}": 1 for n in range(45_000)}}, 5),
            (400,),
        ),
        "a name of a megabyte": (_preview({**SCHEDULE, "cron_exp" * 100_000: 1}, 5), (400,)),
        "50,000 dates": (
            _preview({**NEVER, "constraints": {"avoid": {"dates": ["2001-01-01"] * 50_000}}}, 5),
            (400,),
        ),
        "a list of 300,000 lists": (_preview({**SCHEDULE, "x": [[]] * 300_000}, 5), (400,)),
        "a duration of a megabyte": (
            _upsert({**SCHEDULE, "window": {"mode": "after", "duration": "9" * 900_000}}),
            (400,),
        ),
        # Without commas, which are counted before.
        "a time zone of a megabyte": (_upsert({**SCHEDULE, "timezone": "*/1;" * 220_000}), (400,)),
        "references that do not end": (_references(6_500), (200,)),
        "20,000 lines of unknown zones": (_lines(20_000), (400,)),
        "2,000 definitions of unknown zones": (_definitions(2_000), (400,)),
        "a dry run over all years": (_dry_run, (400,)),
        "a form of a megabyte": (_form(250_000), (413,)),
        "a schedule that finds no time": (_get, (200,)),
        "what if no time were found": (_what_if, (200, 422)),
        "the dry run of an upsert": (_dry_upsert, (200, 422)),
        "the plan of an edit": (_edit, (200, 400)),
        "what if on the page": (
            _page_of(
                "/ui/schedule/what-if", **{"id": "NAME", "if": 'window={"mode":"before","duration":"16m"}'}
            ),
            (200, 422),
        ),
        "the fleet": (_page_of("/ui/fleet"), (200, 422)),
        "the plan of the fleet": (_page_of("/ui/fleet/apply", remedy="hash"), (200, 422)),
        "a timeline of the first year": (
            _page_of("/ui/now", at="0001-01-01T00:00:00Z", zoom="month"),
            (200,),
        ),
        # Without a DAG runtime: a workflow of any nodes, and no pages.
        "a DAG of 10,000 tasks": (_deploy(10_000), (200, 201, 400)),
        "100 triggers that find no time": (_triggers, (200, 201)),
        "the page of a large DAG": (_dag_page, (200, 404)),
    }


REQUESTS = _requests()


def rewrite(client: httpx.Client, prefix: str) -> httpx.Response:
    """Change a thousand schedules in one transaction, to keep the store's only writer busy."""
    minute = time.time_ns() % 60
    lines = [
        json.dumps({**SCHEDULE, "schedule_id": f"{prefix}s{number}", "cron_expr": f"{minute} 9 1 1 *"})
        for number in range(1_000)
    ]
    headers = {"content-type": "application/x-ndjson"}
    return client.post("/schedules/bulk", content="\n".join(lines).encode(), headers=headers)


# --- for a while -----------------------------------------------------------------------------------------


class Target:
    """The service under attack, as one hostile tenant reaches it."""

    def __init__(self, url: str, token: str, prefix: str, ends_at: float) -> None:
        self.client = httpx.Client(
            base_url=url, timeout=60, trust_env=False, headers={"authorization": f"Bearer {token}"}
        )
        self.prefix = prefix
        self._ends_at = ends_at
        self.answers: Counter[str] = Counter()

    @property
    def is_over(self) -> bool:
        """Say whether the attack has lasted long enough."""
        return time.time() >= self._ends_at

    def send(self, request: Request) -> None:
        """Send a request, and count its answer."""
        try:
            self.answers[str(request(self.client, self.prefix).status_code)] += 1
        except httpx.HTTPError as error:
            self.answers[type(error).__name__] += 1


def _sending(*requests: Request) -> Callable[[Target], None]:
    """Return an attack that sends requests one after another, over one connection."""

    def attack(target: Target) -> None:
        while not target.is_over:
            for request in requests:
                target.send(request)

    return attack


# Each as large as it comes.
REQUESTS_OF = {
    **{name: request for name, (request, _) in REQUESTS.items()},
    "bulk lines of nested lists": bulk,
    "1,000 schedules changed at once": rewrite,
}
SENDING = {name: _sending(request) for name, request in REQUESTS_OF.items()}
MIXED = _sending(*REQUESTS_OF.values())
