"""Pages of DAGs: the list, the graph with its grid, a run with its attempts, and their actions."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kron.core.dag.plan import run_id_of
from tests.service import dag_demo
from tests.service.auth import forge
from tests.service.browser import CHROMIUM, MISSING
from tests.service.chromium import Chromium, chromium
from tests.service.server import serving
from tests.service.test_dag import VARIABLES, sh, workflow
from tests.service.web.accessible import faults_of
from tests.service.web.test_actions import signed_in, token
from tests.service.web.test_browser import check_width
from tests.service.web.test_pages import HTML, page_of
from tests.waiting import wait_for

DATE = "2026-06-01T00:00:00Z"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("dags")
    with serving(folder, **VARIABLES, KRON_JWT_SECRET=forge.SECRET) as (client, _):
        yield client


def deploy(service: httpx.Client, name: str, *nodes: dict[str, object], **more: object) -> str:
    """Deploy a workflow of Ann's."""
    answer = service.put(
        f"/workflows/ann.{name}/versions/1",
        json={"user_id": "ann", "nodes": list(nodes), **more},
        headers={"authorization": f"Bearer {token()}"},
    )
    assert answer.status_code == 201, answer.text
    return f"ann.{name}"


def test_a_run_is_triggered_fails_is_retried_and_each_step_is_shown_and_audited(
    service: httpx.Client, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    name = deploy(
        service, "story", sh("first", f"echo '<b>bold</b>'; test -e {gate}"), sh("second", "true", "first")
    )
    with signed_in(service) as browser:
        assert f"/ui/dag?id={name}" in page_of(browser, "/ui/dags").links
        empty = page_of(browser, "/ui/dag", id=name)
        assert "No runs" in empty.text
        assert len([each for each in empty.all("g") if each["class"] == "node plain"]) == 2
        first, again = (
            browser.post("/ui/dag/trigger", params={"id": name}, data={"logical_date": DATE}) for _ in "ab"
        )
        assert first.headers["location"] == again.headers["location"]
        run = first.headers["location"]
        wait_for(lambda: "Retry run" in page_of(browser, run).text)
        failed = page_of(browser, run)
        assert "failed: exit status 1" in failed.text
        assert "<b>bold</b>" in failed.text
        assert {"node bad", "node miss"} == {each["class"] for each in failed.all("g")}
        assert len(failed.all("rect")) == 2 + 1
        gate.touch()
        answer = browser.post(run.replace("/run?", "/run/retry?"), data={"task": "first"})
        assert answer.headers["location"] == run
        wait_for(lambda: {"node ok"} == {each["class"] for each in page_of(browser, run).all("g")})
        assert "first 2" in page_of(browser, run).text
        grid = page_of(browser, "/ui/dag", id=name)
        titles = [each["title"] for each in grid.all("a") if "title" in each]
        assert titles == [f"Run {DATE}: success", f"first, {DATE}: success", f"second, {DATE}: success"]
        assert f"{DATE}: success" in page_of(browser, "/ui/dags").text
        audit = page_of(browser, "/ui/audit", name=name).text
        assert "ann retry" in audit
        assert audit.count("ann trigger") == 1


def test_a_paused_dag_says_so_and_its_run_is_cancelled_from_its_page(service: httpx.Client) -> None:
    name = deploy(service, "still", sh("only", "sleep 60"))
    with signed_in(service) as browser:
        browser.post("/ui/dag/pause", params={"id": name}, data={"paused": "yes"})
        page = page_of(browser, "/ui/dag", id=name)
        assert "paused" in page.text
        assert "Resume" in page.text
        run = browser.post("/ui/dag/trigger", params={"id": name}, data={}).headers["location"]
        assert "Cancel run" in page_of(browser, run).text
        browser.post(run.replace("/run?", "/run/cancel?"), data={})
        assert {each["class"] for each in page_of(browser, run).all("g")} == {"node stop"}
        browser.post("/ui/dag/pause", params={"id": name}, data={"paused": "no"})
        assert "Pause" in page_of(browser, "/ui/dag", id=name).text


def test_a_catch_up_lists_its_slots_and_starts_those_without_a_run(service: httpx.Client) -> None:
    name = deploy(service, "slots", sh("only", "true"))
    span = {"from": "2026-06-01", "to": "2026-06-02T00:00:00Z", "every": "6h"}
    with signed_in(service) as browser:
        browser.post("/ui/dag/trigger", params={"id": name}, data={"logical_date": DATE})
        plan = page_of(browser, "/ui/dag/catchup", id=name, **span)
        assert "5 slots: 4 start, 1 has a run and keeps it." in plan.text
        # The year is shown from the next one on.
        assert re.search("Mon 1 Jun (2026 )?06:00 UTC starts", plan.text)
        assert "Start 4 runs" in plan.text
        answer = browser.post("/ui/dag/catchup", params={"id": name}, data=span)
        assert "4 runs started" in page_of(browser, answer.headers["location"]).text
        again = page_of(browser, "/ui/dag/catchup", id=name, **span).text
        assert "4 runs started" not in again
        assert "Every slot has a run." in again
        for wrong in ({"every": "0s"}, {"every": "soon"}, {"to": "2026-01-01"}):
            page_of(browser, "/ui/dag/catchup", 400, id=name, **{**span, **wrong})


def test_pages_of_dags_are_the_tenants_and_actions_need_their_scope_and_origin(
    service: httpx.Client,
) -> None:
    name = deploy(service, "own", sh("only", "true"))
    run_id = run_id_of(f"{name}:{DATE}")
    deeds = ("/ui/dag/trigger", "/ui/dag/pause", "/ui/dag/catchup")
    with signed_in(service) as browser:
        browser.post("/ui/dag/trigger", params={"id": name}, data={"logical_date": DATE})
        foreign = browser.post(
            "/ui/dag/trigger", params={"id": name}, data={}, headers={"origin": "https://evil.test"}
        )
        assert foreign.status_code == 403
    with signed_in(service, "eve") as eve:
        assert name not in page_of(eve, "/ui/dags").text
        page_of(eve, "/ui/dag", 404, id=name)
        page_of(eve, "/ui/dag/run", 404, id=run_id)
        page_of(eve, "/ui/dag/catchup", 404, id=name)
        for path in deeds:
            data = {"logical_date": DATE, "from": DATE, "to": DATE, "every": "1d"}
            assert eve.post(path, params={"id": name}, data=data).status_code == 404, path
        for verb in ("cancel", "retry"):
            assert eve.post(f"/ui/dag/run/{verb}", params={"id": run_id}, data={}).status_code == 404
    with signed_in(service, scope="read") as reader:
        page = page_of(reader, "/ui/dag", id=name)
        assert [each for each in page.all("form") if each["action"] != "/logout"] == []
        for path in deeds:
            assert reader.post(path, params={"id": name}, data={}).status_code == 403, path


def test_a_service_without_the_runtime_says_how_to_have_it(tmp_path: Path) -> None:
    with serving(tmp_path) as (client, _), httpx.Client(base_url=client.base_url, headers=HTML) as browser:
        page = page_of(browser, "/ui/dags").text
        assert "No DAGs run here" in page
        assert "Workflows go to another executor, or there is none." in page
        assert "runs no DAGs" in page_of(browser, "/ui/dag", 404, id="etl").text


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
def test_the_story_of_a_scheduled_dag_in_a_browser(tmp_path: Path) -> None:
    gate, held = tmp_path / "gate", tmp_path / "held"
    nodes = (
        sh("extract", "[ $KRON_ATTEMPT = 2 ]", retries=1, retry_delay="10ms"),
        sh("load", f"echo loading; test -e {gate}", "extract"),
        sh("hold", f"while [ -e {held} ]; do sleep 0.1; done", "load"),
    )
    with serving(tmp_path, **VARIABLES) as (client, _), chromium(tmp_path) as tab:
        base = str(client.base_url).rstrip("/")
        document = workflow(*nodes, overlap_policy="skip")
        assert client.put("/workflows/etl/versions/1", json=document).status_code == 201

        def runs(status: str) -> list[str]:
            listed = client.get("/dags/etl/runs", params={"status": status}).json()["runs"]
            return [run["run_id"] for run in listed if run["trigger"] == "scheduled"]

        def seen(path: str) -> str:
            tab.open(f"{base}{path}")
            assert tab.console == []
            return str(tab.js("document.documentElement.outerHTML"))

        # It runs on its schedule: one task fails and is retried, another one fails for good.
        failed = wait_for(lambda: runs("failed"))[0]
        dom = seen(f"/ui/dag/run?id={failed}")
        assert 'class="node bad"' in dom
        assert "extract, attempt 1: failed" in dom
        assert "extract, attempt 2: success" in dom
        assert "loading" in dom
        # From then on its last task waits to be cancelled.
        held.touch()
        gate.touch()
        own = {"origin": base, "sec-fetch-site": "same-origin"}

        def sent(verb: str, **fields: str) -> int:
            url = f"/ui/dag/run/{verb}?id={failed}"
            return client.post(url, data=fields, headers=own).status_code

        assert sent("retry", task="load") == 303
        path = f"/dag-runs/{failed}"
        wait_for(lambda: client.get(path).json()["tasks"][2]["status"] == "running")
        assert 'class="node run"' in seen(f"/ui/dag/run?id={failed}")
        assert sent("cancel") == 303
        wait_for(lambda: client.get(path).json()["status"] == "cancelled")
        dom = seen(f"/ui/dag/run?id={failed}")
        assert 'class="node stop"' in dom
        assert "hold, attempt 1: cancelled" in dom
        grid = seen("/ui/dag?id=etl")
        assert 'class="grid"' in grid
        assert "load, 20" in grid
        tab.open(f"{base}/ui/dag/run?id={failed}")
        assert faces_of(tab, tmp_path, 1280) == 2
        # Executions outlive the service: those that are held end now.
        held.unlink()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
def test_pages_of_dags_fit_every_window_and_have_two_faces(tmp_path: Path) -> None:
    with serving(tmp_path, **dag_demo.VARIABLES) as (client, _):
        runs = dag_demo.seed(client, days=3)
        dag = f"/ui/dag?id={dag_demo.NAME}"
        failed = f"/ui/dag/run?id={runs[2]}"
        slots = f"/ui/dag/catchup?id={dag_demo.NAME}&from=2026-06-01&to=2026-06-05&every=1d"
        for path in (dag, failed, slots):
            check_width(client, tmp_path, path)
        with chromium(tmp_path) as tab:
            base = str(client.base_url).rstrip("/")
            for width in (1280, 390):
                faults = faults_of(tab, base, ["/ui/dags", dag, failed, slots], width=width)
                assert faults == {}, json.dumps(faults, indent=1)
            tab.open(f"{base}{dag}")
            assert faces_of(tab, tmp_path, 390) == 2
            # A catch-up of 24 days, of which three have a run, starts the other 21.
            tab.show()
            tab.open(f"{base}/ui/dag/catchup?id={dag_demo.NAME}&from=2026-06-01&to=2026-06-24&every=1d")
            assert "24 slots: 21 start, 3 have a run and keep it." in tab.text
            tab.follow("Start 21 runs")
            tab.wait_for_text("21 runs started")
            listed = client.get(f"/dags/{dag_demo.NAME}/runs", params={"limit": "100"}).json()["runs"]
            assert len({run["logical_date"] for run in listed}) == len(listed) == 24
            # A run that failed is retried after its effect was shown.
            tab.open(f"{base}{failed}")
            tab.click("Retry run")
            assert "Tasks that start cannot be undone" in tab.text
            tab.follow("Retry this run")
            wait_for(
                lambda: any(
                    task["attempt"] > 1 for task in client.get(f"/dag-runs/{runs[2]}").json()["tasks"]
                )
            )
            tab.open(f"{base}{dag}")
            tab.click("Trigger")
            tab.type("input#logical_date", "2026-07-01T00:00:00Z")
            tab.follow("Start the run")
            assert tab.path.startswith("/ui/dag/run?id=")
            assert tab.console == []


def faces_of(tab: Chromium, folder: Path, width: int) -> int:
    """Return how many different pictures a page has in the light and in the dark scheme."""
    pictures = set()
    for is_dark in (False, True):
        tab.show(width=width, dark=is_dark)
        pictures.add(tab.picture(folder / "page.png"))
    return len(pictures)
