"""Two tenants of one service: no page and no form leads from one to the other, whatever its address says.

The routes are those that the service has: a new one fails here until its parameters are listed.
"""

import json
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import httpx
import pytest

from kron.core.dag.plan import run_id_of
from kron.fronts.service.auth.middleware import NEEDS
from tests.service.auth import forge
from tests.service.server import serving
from tests.service.test_dag import VARIABLES, sh
from tests.service.web.test_actions import added_for, form_of, owned, signed_in, token
from tests.service.web.test_dag_pages import deploy
from tests.service.web.test_pages import page_of
from tests.service.webpage import Webpage
from tests.waiting import wait_for

DATE = "2026-06-01T00:00:00Z"
YEAR = {"from": "2025-01-01T00:00:00Z", "to": "2026-06-01T00:00:00Z"}
SLOTS = {"from": DATE, "to": DATE, "every": "1d"}
# Words that only a page of Ann's may have.
SECRET = "carrot"


class Owned(NamedTuple):
    """What Ann has: a schedule with a run and its output, and a DAG with a run."""

    schedule: str
    run_key: str
    run_at: str
    etag: str
    edited_at: str
    dag: str
    dag_run: str
    worker: str

    def route(self, method: str, path: str) -> tuple[dict[str, str], dict[str, str]]:
        """Return the parameters and the form of a request for what is Ann's, at a route."""
        name = {"id": self.schedule}
        at = {"at": "2026-01-01T00:00:00Z"}
        states = json.dumps({self.schedule: self.etag})
        wanted: dict[str, tuple[dict[str, str], dict[str, str]]] = {
            "/": ({}, {}),
            "/ui/now": ({}, {}),
            "/ui/schedule": (name, {}),
            "/ui/schedule/run": (name, {"request": "mine"}),
            "/ui/schedule/pause": (name, {"reason": "taken"}),
            "/ui/schedule/resume": (name, {}),
            "/ui/schedule/what-if": ({**name, "if": "overlap=allow"}, {}),
            "/ui/schedule/edit": (name, {"definition": "{}", "etag": self.etag, "do": "save"}),
            "/ui/schedule/backfill": ({**name, **(YEAR if method == "GET" else {})}, YEAR),
            "/ui/audit": ({}, {}),
            "/ui/fleet": ({}, {}),
            "/ui/fleet/apply": ({"remedy": "window"}, {"states": states}),
            "/ui/fleet/undo": ({"at": self.edited_at}, {}),
            "/ui/workers": ({}, {}),
            "/ui/workers/drain": ({"id": self.worker}, {"drain": "yes"}),
            "/ui/playground": ({"cron": "0 9 * * *"}, {}),
            "/ui/period": ({**name, **at}, {}),
            "/ui/run": ({"key": self.run_key}, {}),
            "/ui/run/output": ({**name, "at": self.run_at, "key": self.run_key}, {}),
            "/ui/runs": ({}, {}),
            "/ui/dags": ({}, {}),
            "/ui/dag": ({"id": self.dag}, {}),
            "/ui/dag/run": ({"id": self.dag_run}, {}),
            "/ui/dag/catchup": ({"id": self.dag, **(SLOTS if method == "GET" else {})}, SLOTS),
            "/ui/dag/trigger": ({"id": self.dag}, {"logical_date": DATE}),
            "/ui/dag/pause": ({"id": self.dag}, {"paused": "yes"}),
            "/ui/dag/run/cancel": ({"id": self.dag_run}, {}),
            "/ui/dag/run/retry": ({"id": self.dag_run}, {}),
        }
        return wanted[path]


# The stream of events has no data; pages that are open to everybody show none.
WITHOUT_DATA = {"/ui/live", "/docs", "/login", "/logout", "/static/{name}", "/favicon.ico"}
ROUTES = sorted(
    (method, path)
    for (method, path), need in NEEDS.items()
    if need.page and path not in WITHOUT_DATA
)  # fmt: skip
# Lists of the caller's own things: they answer, without those of another tenant.
LISTS = {"/", "/ui/now", "/ui/audit", "/ui/fleet", "/ui/runs", "/ui/dags", "/ui/playground"}
# A plan of the fleet, and the forms that change several schedules at once, find none of the caller's.
NOTHING_FOUND = {
    ("GET", "/ui/fleet/apply"): 200,
    ("POST", "/ui/fleet/apply"): 400,
    ("POST", "/ui/fleet/undo"): 400,
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("tenants")
    with serving(folder, **VARIABLES, KRON_JWT_SECRET=forge.SECRET) as (client, _):
        yield client


@pytest.fixture(scope="module")
def owned_by_ann(service: httpx.Client) -> Owned:
    says = {"kind": "process", "command": ["/bin/sh", "-c", f"echo {SECRET}"]}
    for number in range(4):
        fields = {"cron_expr": "17 4 * * *", "tags": [SECRET], "launcher": says}
        added_for(service, "ann", f"{SECRET}{number}", **fields)
    name, headers = f"ann/{SECRET}0", owned("ann")
    path = f"/schedules/{quote(name, safe='')}"
    started = service.post(f"{path}/run", headers=headers).json()
    key, run_at = started["idempotency_key"], started["run_at"]
    dag = deploy(service, SECRET, sh("only", "true"))
    run = service.post(f"/dags/{dag}/runs", json={"logical_date": DATE}, headers=headers)
    assert run.status_code < 300, run.text
    run_id = run_id_of(f"{dag}:{DATE}")
    wait_for(lambda: service.get(f"/dag-runs/{run_id}", headers=headers).json()["ended_at"])
    with signed_in(service, "ann") as ann:
        page = ann.post("/ui/fleet/apply?remedy=window", data={"states": _states(ann)})
        edited_at = page.headers["location"].rpartition("at=")[2]
    for number in (4, 5):
        # They share a minute on every day; of the others, which have windows now, some days have no such two.
        added_for(service, "ann", f"{SECRET}{number}", cron_expr="17 4 * * *", tags=[SECRET])
    etag = service.get(path, headers=headers).headers["etag"]
    admin = {"authorization": f"Bearer {token('root', 'admin')}"}
    worker = service.get("/workers", headers=admin).json()["workers"][0]["worker"]
    with signed_in(service, "ann") as ann:
        wait_for(lambda: SECRET in ann.get("/ui/run", params={"key": key}).text.partition("<pre")[2])
    return Owned(name, key, run_at, etag, edited_at, dag, run_id, worker)


def _states(ann: httpx.Client) -> str:
    return form_of(page_of(ann, "/ui/fleet/apply?remedy=window"))[1]["states"]


def snapshot(service: httpx.Client, mine: Owned) -> list[object]:
    """Return all that a request of another tenant might have changed."""
    headers = owned("ann")
    path = f"/schedules/{quote(mine.schedule, safe='')}"
    schedule = service.get(path, headers=headers).json()
    fields = [schedule[field] for field in ("cron_expr", "window", "paused", "launcher")]
    runs = service.get(f"{path}/runs", headers=headers).json()["runs"]
    dag_runs = service.get(f"/dags/{mine.dag}/runs", headers=headers).json()["runs"]
    dags = service.get("/dags", headers=headers).json()
    return [*fields, sorted(run["idempotency_key"] for run in runs), dag_runs, dags]


def test_ann_reaches_what_is_hers_at_every_page(service: httpx.Client, owned_by_ann: Owned) -> None:
    """Otherwise the test below would show nothing."""
    with signed_in(service, "ann") as ann:
        for method, path in ROUTES:
            if method == "GET" and not path.startswith("/ui/workers") and path != "/ui/fleet/apply":
                query, _ = owned_by_ann.route(method, path)
                answer = ann.get(path, params=query)
                assert answer.status_code == 200, (path, answer.text)
                if path != "/ui/playground":
                    assert SECRET in answer.text, path


@pytest.mark.parametrize("scope", ["read write run", "read"])
def test_no_address_and_no_form_leads_to_another_tenant(
    service: httpx.Client, owned_by_ann: Owned, scope: str
) -> None:
    before = snapshot(service, owned_by_ann)
    assert len(ROUTES) >= 35
    with signed_in(service, "mallory", scope) as mallory:
        for method, path in ROUTES:
            query, form = owned_by_ann.route(method, path)
            if method == "GET":
                answer = mallory.get(path, params=query)
            else:
                answer = mallory.post(path, params=query, data=form)
            refused = {403} if path.startswith("/ui/workers") else {404}
            if method == "POST" and scope == "read":
                refused = {403}
            elif path in LISTS:
                refused = {200}
            elif (method, path) in NOTHING_FOUND:
                refused = {NOTHING_FOUND[method, path]}
            assert answer.status_code in refused, (method, path, answer.status_code, answer.text)
            # The page of an error repeats the name that was asked for.
            shown = answer.text.replace(owned_by_ann.schedule, "").replace(owned_by_ann.dag, "")
            assert SECRET not in shown, (method, path)
        # Her own schedule leads no further, with the key and the time of another's run.
        if scope != "read":
            added_for(service, "mallory", "own", cron_expr="0 0 1 1 *")
            name, at = {"id": "mallory/own"}, {"at": owned_by_ann.run_at}
            answer = mallory.get("/ui/run/output", params={**name, **at, "key": owned_by_ann.run_key})
            assert answer.status_code == 400
            assert SECRET not in answer.text
            page = mallory.get("/ui/period", params={**name, **at})
            assert SECRET not in page.text
        for path, query, shown in (
            ("/", {"search": SECRET}, "No schedules found"),
            ("/", {"tag": SECRET}, "No schedules found"),
            ("/ui/audit", {"name": owned_by_ann.schedule}, "No entries"),
            ("/ui/audit", {"who": "ann"}, "No entries"),
            ("/ui/now", {"tag": SECRET}, "No schedules with this tag"),
        ):
            assert shown in page_of(mallory, path, **query).text
    assert snapshot(service, owned_by_ann) == before


# Plans that everybody may read: only their last button needs a scope.
PLANS = {"/ui/fleet/apply"}


def offered(page: Webpage) -> set[str]:
    """Return where the forms of a page lead that change something and have a button."""
    found, action = set[str](), None
    for tag, attributes in page.elements:
        if tag == "form":
            changes = attributes.get("method") == "post"
            action = urlsplit(attributes["action"]).path if changes else None
        elif tag == "button" and action is not None:
            found.add(action)
    return found - {"/logout"}


def test_a_reader_is_offered_no_action_on_any_page(service: httpx.Client, owned_by_ann: Owned) -> None:
    acts = {path for (method, path), need in NEEDS.items() if method == "POST" and need.page}
    pages = [path for method, path in ROUTES if method == "GET" and path != "/ui/run/output"]
    pages = [path for path in pages if not path.startswith("/ui/workers")]
    assert len(acts) >= 13
    with signed_in(service, "ann", "read") as reader, signed_in(service, "ann") as ann:
        for path in pages:
            query, _ = owned_by_ann.route("GET", path)
            page = page_of(reader, path, **query)
            assert offered(page) == set(), path
            links = {urlsplit(link).path for link in page.links} & acts
            assert path in acts or links <= PLANS, path
        # With every scope the same pages offer them.
        name = {"id": owned_by_ann.schedule}
        links = {urlsplit(link).path for link in page_of(ann, "/ui/schedule", **name).links}
        assert {f"/ui/schedule/{word}" for word in ("run", "pause", "edit", "backfill")} <= links
        assert offered(page_of(ann, "/ui/schedule/pause", **name)) == {"/ui/schedule/pause"}
        assert offered(page_of(ann, "/ui/dag", id=owned_by_ann.dag)) >= {"/ui/dag/pause", "/ui/dag/trigger"}
