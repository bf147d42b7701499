"""Actions of the pages, done by a signed-in browser: shown before, done once, audited, never by others."""

import html
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from kron.fronts.service.web.fleet import MAX_SPREAD
from tests.service.auth import forge
from tests.service.server import serving
from tests.service.web.test_pages import HTML, page_of
from tests.service.webpage import Webpage
from tests.waiting import PATIENCE_S, wait_for

EVERYTHING = "read write run"
SECRET = {"kind": "http", "url": "http://127.0.0.1:9/x", "headers": {"Authorization": "hunter2"}}
DOCUMENT = {"cron_expr": "0 0 1 1 *", "timezone": "UTC", "launcher": {"kind": "log", "message": "hello"}}


def token(sub: str = "ann", scope: str = EVERYTHING) -> str:
    now = int(time.time())
    return forge.token(sub=sub, scope=scope, iat=now, exp=now + 600)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with serving(tmp_path_factory.mktemp("actions"), KRON_JWT_SECRET=forge.SECRET) as (client, _):
        yield client


@contextmanager
def signed_in(service: httpx.Client, sub: str = "ann", scope: str = EVERYTHING) -> Iterator[httpx.Client]:
    """Sign a browser in: it keeps a cookie, and says where its forms come from."""
    origin = str(service.base_url).rstrip("/")
    headers = {**HTML, "origin": origin, "sec-fetch-site": "same-origin"}
    with httpx.Client(
        base_url=service.base_url, timeout=PATIENCE_S, trust_env=False, headers=headers
    ) as browser:
        assert browser.post("/login", data={"token": token(sub, scope)}).status_code == 303
        yield browser


def added(service: httpx.Client, name: str, **fields: object) -> str:
    """Create a schedule of Ann's."""
    document = {**DOCUMENT, "schedule_id": f"ann/{name}", **fields}
    answer = service.post("/schedules/upsert", json=document, headers={"authorization": f"Bearer {token()}"})
    assert answer.status_code == 200, answer.text
    return f"ann/{name}"


def form_of(page: Webpage) -> tuple[str, dict[str, str]]:
    """Return the address of a page's last form and its fields."""
    form = [each for each in page.all("form") if each.get("method") == "post"][-1]
    names = {field["name"]: field.get("value", "") for field in page.all("input") if "name" in field}
    return form["action"], names


def typed_in(answer: httpx.Response) -> str:
    """Return the definition in the form of a page."""
    (area,) = re.findall(r"<textarea[^>]*>(.*?)</textarea>", answer.text, re.DOTALL)
    return html.unescape(area)


def test_a_run_is_confirmed_started_once_and_shown(service: httpx.Client) -> None:
    name = added(service, "run-me")
    with signed_in(service) as browser:
        assert (
            f"/ui/schedule/run?id={name.replace('/', '%2F')}"
            in page_of(browser, "/ui/schedule", id=name).links
        )
        page = page_of(browser, "/ui/schedule/run", id=name)
        action, fields = form_of(page)
        first, again = (browser.post(action, data=fields) for _ in range(2))
        assert first.status_code == again.status_code == 303
        assert first.headers["location"] == again.headers["location"]
        wait_for(lambda: "success" in page_of(browser, first.headers["location"]).text)
        assert len(service.get(
            f"/schedules/{name.replace('/', '%2F')}/runs", headers={"authorization": f"Bearer {token()}"}
        ).json()["runs"]) == 1  # fmt: skip


def test_a_pause_has_a_reason_and_an_end_and_a_resume_shows_what_it_starts(service: httpx.Client) -> None:
    name = added(service, "pause-me", cron_expr="* * * * * *", catchup_policy="all")
    with signed_in(service) as browser:
        action, _ = form_of(page_of(browser, "/ui/schedule/pause", id=name))
        answer = browser.post(action, data={"reason": "the disk is full", "for": "8 hours", "until": ""})
        assert answer.status_code == 303
        page = page_of(browser, answer.headers["location"])
        assert "Paused. No run starts" in page.text
        assert "the disk is full" in page.text
        assert re.search(r"paused_until \d{4}-", page.text)
        wait_for(lambda: "No run starts" not in page_of(browser, "/ui/schedule/resume", id=name).text)
        resume = page_of(browser, "/ui/schedule/resume", id=name)
        assert re.search(r"\d+ runs? starts? at once", resume.text)
        answer = browser.post(form_of(resume)[0], data={})
        assert "Resumed." in page_of(browser, answer.headers["location"]).text
        entries = page_of(browser, "/ui/audit", name=name)
        assert "ann resume" in entries.text
        assert "ann pause" in entries.text
        assert "ann create" in entries.text
        assert "paused true false" in entries.text
        browser.post(action, data={})


def test_a_resume_says_why_it_drops_periods(service: httpx.Client) -> None:
    name = added(service, "drop-me", cron_expr="* * * * * *")
    with signed_in(service) as browser:
        browser.post("/ui/schedule/pause", params={"id": name}, data={})
        wait_for(lambda: "dropped" in page_of(browser, "/ui/schedule/resume", id=name).text)
        page = page_of(browser, "/ui/schedule/resume", id=name)
        assert re.search(r"of the pause (is|are) dropped: the catch-up policy is none\.", page.text)
        browser.post("/ui/schedule/resume", params={"id": name}, data={})
        browser.post("/ui/schedule/pause", params={"id": name}, data={})


def test_a_wrong_end_of_a_pause_keeps_what_was_typed(service: httpx.Client) -> None:
    name = added(service, "typed")
    with signed_in(service) as browser:
        answer = browser.post(
            "/ui/schedule/pause", params={"id": name}, data={"reason": "x<y", "until": "soon"}
        )
        assert answer.status_code == 400
        page = Webpage(answer.text)
        assert "use an instant such as" in page.text
        assert {field.get("value") for field in page.all("input")} >= {"x<y", "soon"}


def test_a_backfill_is_planned_and_its_progress_shown(service: httpx.Client) -> None:
    name = added(service, "fill", cron_expr="0 0 * * *")
    interval = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-08T00:00:00Z"}
    with signed_in(service) as browser:
        empty = page_of(browser, "/ui/schedule/backfill", id=name)
        assert "missing: those that did not run" in empty.text
        ranges = [link for link in empty.links if link.startswith("/ui/schedule/backfill?")]
        assert "7 periods would run now." in page_of(browser, ranges[-1]).text
        wrong = browser.get("/ui/schedule/backfill", params={"id": name, **interval, "to": "soon"})
        assert wrong.status_code == 400
        plan = page_of(browser, "/ui/schedule/backfill", id=name, **interval)
        assert "7 periods would run now." in plan.text
        action, fields = form_of(plan)
        answer = browser.post(action, data=fields)
        assert answer.status_code == 303
        following = answer.headers["location"]
        wait_for(lambda: "7 of 7 runs have ended." in page_of(browser, following).text)
        (bar,) = page_of(browser, following).all("progress")
        assert (bar["value"], bar["max"]) == ("7", "7")
        again = page_of(browser, "/ui/schedule/backfill", id=name, **interval)
        assert "0 periods would run." in again.text


@pytest.mark.slow
def test_the_progress_of_a_backfill_counts_runs_that_ended_and_that_failed(tmp_path: Path) -> None:
    """The first period fails, the second succeeds, and the third runs until the gate is open."""
    gate = tmp_path / "gate"
    script = (
        f"case $KRON_PERIOD_ID in *-01T*) exit 1;; *-03T*) while ! test -e {gate}; do sleep 0.1; done;; esac"
    )
    with serving(tmp_path, KRON_ALLOWED_COMMANDS="/bin/sh") as (client, _):
        client.headers.update(HTML)
        launcher = {"kind": "process", "command": ["/bin/sh", "-c", script]}
        document = {"schedule_id": "fill", "cron_expr": "0 0 * * *", "timezone": "UTC", "launcher": launcher}
        assert client.post("/schedules/upsert", json=document).status_code == 200
        interval = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-04T00:00:00Z"}
        action, fields = form_of(page_of(client, "/ui/schedule/backfill", id="fill", **interval))
        sent = client.post(action, data=fields, headers={"origin": str(client.base_url).rstrip("/")})
        following = sent.headers["location"]
        wait_for(lambda: "2 of 3 runs have ended, 1 failed." in page_of(client, following).text)
        (bar,) = page_of(client, following).all("progress")
        assert (bar["value"], bar["max"]) == ("2", "3")
        gate.touch()
        wait_for(lambda: "3 of 3 runs have ended, 1 failed." in page_of(client, following).text)


def test_a_suggestion_for_many_schedules_with_long_names_can_be_applied(service: httpx.Client) -> None:
    names = [f"zoe/{'ежедневная-выгрузка-' * 3}{number}" for number in range(MAX_SPREAD)]
    lines = [json.dumps({**DOCUMENT, "schedule_id": name, "cron_expr": "0 4 * * *"}) for name in names]
    headers = {"authorization": f"Bearer {token('zoe')}", "content-type": "application/x-ndjson"}
    service.post("/schedules/bulk", content="\n".join(lines), headers=headers).raise_for_status()
    with signed_in(service, "zoe") as browser:
        action, fields = form_of(page_of(browser, "/ui/fleet/apply", remedy="window"))
        answer = browser.post(action, data=fields)
        assert answer.status_code == 303, answer.text
        assert f"done={MAX_SPREAD}" in answer.headers["location"]


def test_an_edit_shows_what_moves_and_collides_before_it_is_saved(service: httpx.Client) -> None:
    added(service, "neighbour", cron_expr="0 5 * * *")
    name = added(service, "edit-me", cron_expr="0 3 * * *", launcher=SECRET)
    with signed_in(service) as browser:
        page = page_of(browser, "/ui/schedule/edit", id=name)
        action, fields = form_of(page)
        document = json.loads(typed_in(browser.get(action)))
        assert "hunter2" not in json.dumps(document)
        document["schedule"] = "0 5 * * *"
        sent = {**fields, "definition": json.dumps(document), "do": "plan"}
        plan = Webpage(browser.post(action, data=sent).text)
        assert "schedule 0 3 * * * 0 5 * * *" in plan.text
        # The launcher is stored apart, and stays as it is.
        assert "launcher." not in plan.text
        assert re.search(
            r"In the next 28 d: 2[78] starts move, (0 appear|1 appears), 0 vanish, 0 stay", plan.text
        )
        assert "2 h later" in plan.text
        assert "ann/neighbour" in plan.text
        assert "0 3 * * *" in page_of(browser, "/ui/schedule", id=name).text
        sent["planned"] = form_of(plan)[1]["planned"]
        saved = browser.post(action, data={**sent, "do": "save"})
        assert saved.headers["location"].endswith("done=edited&undo=1")
        assert "0 5 * * *" in page_of(browser, saved.headers["location"]).text
        assert "schedule 0 3 * * * 0 5 * * *" in page_of(browser, "/ui/audit", name=name).text
        late = browser.post(action, data={**sent, "do": "save"})
        assert late.status_code == 400
        assert "changed" in Webpage(late.text).text


def test_the_plan_of_an_edit_has_what_it_changes_and_no_secret(service: httpx.Client) -> None:
    notify = {"to": ["http://127.0.0.1:9/hook?token=hunter2"], "heartbeat": "http://127.0.0.1:9/hunter2"}
    name = added(service, "whole", tags=["a", "b"], description="Loads the orders.", notify=notify)
    with signed_in(service) as browser:
        action, fields = form_of(page_of(browser, "/ui/schedule/edit", id=name))
        text = typed_in(browser.get(action))
        same = browser.post(action, data={**fields, "definition": text, "do": "plan"})
        assert "This edit changes nothing." in Webpage(same.text).text
        other = json.dumps({**json.loads(text), "description": "Loads all.", "tags": ["a"]})
        plan = browser.post(action, data={**fields, "definition": other, "do": "plan"})
        assert "description Loads the orders. Loads all. tags" in Webpage(plan.text).text
        assert 'tags ["a", "b"] ["a"] In the next' in Webpage(plan.text).text
        assert "hunter2" not in same.text + plan.text


def test_the_plan_of_an_edit_says_what_its_lists_leave_out(service: httpx.Client) -> None:
    for number in range(2):
        added(service, f"hourly-{number}", cron_expr="7 * * * *")
    name = added(service, "hourly-edited", cron_expr="5 * * * *")
    with signed_in(service) as browser:
        action, fields = form_of(page_of(browser, "/ui/schedule/edit", id=name))
        text = typed_in(browser.get(action)).replace("5 * * * *", "7 * * * *")
        plan = Webpage(browser.post(action, data={**fields, "definition": text, "do": "plan"}).text)
        moves = re.search(
            r"In the next 7 d: (\d+) starts move, .* and (\d+) more (\d+) minutes have", plan.text
        )
        assert moves is not None, plan.text
        assert int(moves[1]) == int(moves[2]) + 30 == int(moves[3])
        assert re.search(r"and \d+ more minutes\. Compared with \d+ other schedules\.", plan.text)


def test_what_was_typed_after_the_plan_is_planned_before_it_is_saved(service: httpx.Client) -> None:
    name = added(service, "twice-typed", cron_expr="5 4 * * *")
    with signed_in(service) as browser:
        action, fields = form_of(page_of(browser, "/ui/schedule/edit", id=name))
        text = typed_in(browser.get(action))

        def sent(do: str, expression: str) -> httpx.Response:
            # As a browser sends the lines of a text.
            definition = text.replace("5 4 * * *", expression).replace("\n", "\r\n")
            answer = browser.post(action, data={**fields, "definition": definition, "do": do})
            if answer.status_code != 303:
                fields.update(form_of(Webpage(answer.text))[1])
            return answer

        assert sent("plan", "6 4 * * *").status_code == 200
        unplanned = Webpage(sent("save", "7 4 * * *").text)
        assert "This is its plan now: save again" in unplanned.text
        assert "schedule 5 4 * * * 7 4 * * *" in unplanned.text
        assert "5 4 * * *" in page_of(browser, "/ui/schedule", id=name).text
        assert sent("save", "7 4 * * *").status_code == 303
        assert "7 4 * * *" in page_of(browser, "/ui/schedule", id=name).text


def test_an_edit_of_a_schedule_that_has_changed_since_is_compared_with_it(service: httpx.Client) -> None:
    name = added(service, "two-editors", cron_expr="5 4 * * *", description="one")
    with signed_in(service) as browser:
        action, fields = form_of(page_of(browser, "/ui/schedule/edit", id=name))
        sent = {**fields, "definition": typed_in(browser.get(action)).replace("5 4 * * *", "6 4 * * *")}
        planned = form_of(Webpage(browser.post(action, data={**sent, "do": "plan"}).text))[1]
        added(service, "two-editors", cron_expr="5 4 * * *", description="two")
        stale = browser.post(action, data={**sent, **planned, "do": "save"})
        assert stale.status_code == 400
        assert "has changed since this page was opened. What is typed here is kept" in stale.text
        assert typed_in(stale) == sent["definition"]
        assert ">Save<" not in stale.text
        sent |= form_of(Webpage(stale.text))[1]
        plan = browser.post(action, data={**sent, "do": "plan"})
        assert "schedule 5 4 * * * 6 4 * * * description two one" in Webpage(plan.text).text
        sent |= form_of(Webpage(plan.text))[1]
        assert browser.post(action, data={**sent, "do": "save"}).status_code == 303
        shown = page_of(browser, "/ui/schedule", id=name).text
        assert "6 4 * * *" in shown


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schedule": "61 * * * *"}, "minute field"),
        ({"identity": "ann/other"}, "must stay"),
        (None, "must be JSON"),
    ],
)
def test_a_wrong_edit_is_explained_and_kept(
    service: httpx.Client, changes: dict[str, object] | None, words: str
) -> None:
    name = added(service, "wrong-edit")
    with signed_in(service) as browser:
        action, fields = form_of(page_of(browser, "/ui/schedule/edit", id=name))
        document = json.loads(typed_in(browser.get(action)))
        text = "{" if changes is None else json.dumps({**document, **changes})
        answer = browser.post(action, data={**fields, "definition": text, "do": "save"})
        assert answer.status_code == 400
        assert words in Webpage(answer.text).text
        assert html.escape(text, quote=False)[:20] in answer.text.replace("&#34;", '"')


FORMS = [
    ("/ui/schedule/run", {}),
    ("/ui/schedule/pause", {"reason": "x"}),
    ("/ui/schedule/resume", {}),
    ("/ui/schedule/edit", {}),
    ("/ui/schedule/backfill", {"from": "2026-01-01T00:00:00Z", "to": "2026-01-08T00:00:00Z"}),
]


@pytest.mark.parametrize(("path", "fields"), FORMS, ids=[path.rpartition("/")[2] for path, _ in FORMS])
def test_a_form_is_refused_without_its_scope_from_another_site_and_for_another_tenant(
    service: httpx.Client, path: str, fields: dict[str, str]
) -> None:
    name = added(service, "guarded")
    own = {"authorization": f"Bearer {token()}"}
    before = service.get("/audit", params={"name": name}, headers=own).json()["entries"]
    with signed_in(service, scope="read") as reader:
        assert reader.post(path, params={"id": name}, data=fields).status_code == 403
        assert (
            "Needs a token with scope" in reader.get(path, params={"id": name, **fields}).text or not fields
        )
        assert "/ui/schedule/pause" not in str(page_of(reader, "/ui/schedule", id=name).links)
    with signed_in(service) as browser:
        for headers in (
            {"origin": "https://evil.test", "sec-fetch-site": "cross-site"},
            {"origin": "https://evil.test", "sec-fetch-site": "same-origin"},
            {"origin": "null", "sec-fetch-site": "same-site"},
        ):
            answer = browser.post(path, params={"id": name}, data=fields, headers=headers)
            assert answer.status_code == 403, headers
            assert "does not come from a page of this service" in answer.text
        del browser.headers["origin"], browser.headers["sec-fetch-site"]
        assert browser.post(path, params={"id": name}, data=fields).status_code == 403
        typed = {"origin": str(service.base_url).rstrip("/")}
        assert browser.post(path, params={"id": name}, json=fields, headers=typed).status_code == 415
    with signed_in(service, sub="bob") as other:
        theirs = other.post(path, params={"id": name}, data=fields)
        absent = other.post(path, params={"id": "ann/no-such"}, data=fields)
        assert theirs.status_code == absent.status_code == 404
        assert other.get(path, params={"id": name, **fields}).status_code == 404
    assert service.get("/audit", params={"name": name}, headers=own).json()["entries"] == before


def test_a_form_that_is_sent_after_the_session_returns_to_its_schedule(service: httpx.Client) -> None:
    answer = service.post("/ui/schedule/pause", params={"id": "ann/x"}, data={"reason": "x"})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/login?next=%2Fui%2Fschedule%3Fid%3Dann%252Fx"


def test_the_audit_of_another_tenant_is_not_shown(service: httpx.Client) -> None:
    added(service, "audited")
    with signed_in(service, sub="bob") as other:
        page = page_of(other, "/ui/audit", name="ann/audited")
        assert "No entries" in page.text
        assert "No change matches this filter" in page.text


def test_only_an_admin_sees_the_workers_and_every_caller_the_health_of_leases(service: httpx.Client) -> None:
    with signed_in(service, scope="admin") as admin:
        page = page_of(admin, "/ui/workers")
        assert "Leases: 1 worker with all 64 shards" in page.text
        assert "none: it locks the file of the store" in page.text
        assert "/ui/workers" in page.links
    with signed_in(service) as browser:
        assert browser.get("/ui/workers").status_code == 403
        now = page_of(browser, "/ui/now")
        assert "Leases: 1 worker with all 64 shards" in now.text
        assert "/ui/workers" not in now.links


def test_an_edit_is_undone_through_its_plan(service: httpx.Client) -> None:
    name = added(service, "undo-me", cron_expr="5 4 * * *")
    with signed_in(service) as browser:
        action, fields = form_of(page_of(browser, "/ui/schedule/edit", id=name))
        text = typed_in(browser.get("/ui/schedule/edit", params={"id": name}))
        changed = {**fields, "definition": text.replace("5 4 * * *", "6 4 * * *"), "do": "plan"}
        changed |= {**form_of(Webpage(browser.post(action, data=changed).text))[1], "do": "save"}
        saved = page_of(browser, browser.post(action, data=changed).headers["location"])
        assert "Saved. Undo" in saved.text
        back = next(link for link in saved.links if "epoch=" in link)
        plan = page_of(browser, back)
        assert "6 4 * * * 5 4 * * *" in plan.text
        action, fields = form_of(plan)
        answer = browser.post(action, data={**fields, "definition": text, "do": "save"})
        assert answer.status_code == 303
        assert "5 4 * * *" in page_of(browser, "/ui/schedule", id=name).text
        page_of(browser, "/ui/schedule/edit", 400, id=name, epoch="999")
        # A pause leads back to the resume, and the resume to the pause.
        action, _ = form_of(page_of(browser, "/ui/schedule/pause", id=name))
        paused = page_of(browser, browser.post(action, data={}).headers["location"])
        assert "until the schedule is resumed. Undo" in paused.text


def test_a_suggestion_of_the_fleet_is_planned_applied_to_all_at_once_and_audited(
    service: httpx.Client,
) -> None:
    names = [added_for(service, "eve", f"full{number}", cron_expr="17 4 * * *") for number in range(5)]
    with signed_in(service, "eve") as browser:
        fleet = page_of(browser, "/ui/fleet")
        addresses = {link["href"] for link in fleet.all("a") if "/ui/fleet/apply" in link.get("href", "")}
        assert addresses == {"/ui/fleet/apply?remedy=window", "/ui/fleet/apply?remedy=hash"}
        stale = form_of(page_of(browser, "/ui/fleet/apply?remedy=hash"))
        plan = page_of(browser, "/ui/fleet/apply?remedy=window")
        assert "instead of 5 starts" in plan.text
        address, fields = form_of(plan)
        assert json.loads(fields["states"]).keys() == set(names)
        done = browser.post(address, data=fields)
        assert done.status_code == 303
        applied = done.headers["location"]
        assert re.fullmatch(r"/ui/fleet\?done=5&at=\d+", applied)
        # What was planned before is refused as a whole.
        refused = browser.post(stale[0], data=stale[1])
        assert refused.status_code == 400
        windows = [browser.get(f"/schedules/{quote(name, safe='')}", headers=owned("eve")) for name in names]
        assert {json.dumps(each.json()["window"]) for each in windows} == {
            '{"mode": "after", "duration": "10m"}'
        }
        assert {each.json()["cron_expr"] for each in windows} == {"17 4 * * *"}
        assert page_of(browser, "/ui/audit").text.count("edit") >= 5
        assert browser.post("/ui/fleet/apply?remedy=window", data={"states": "[]"}).status_code == 400
        # One schedule is edited again; the undo returns the others to what they were, once.
        added_for(service, "eve", "full0", cron_expr="18 4 * * *")
        undo = next(
            each["action"] for each in page_of(browser, applied).all("form") if "undo" in each["action"]
        )
        with signed_in(service, "mallory") as other:
            assert other.post(undo, data={}).status_code == 400
        assert browser.post(undo, data={}).headers["location"] == "/ui/fleet?done=4"
        assert browser.post(undo, data={}).status_code == 400
        undone = [
            browser.get(f"/schedules/{quote(name, safe='')}", headers=owned("eve")).json() for name in names
        ]
        assert [each["cron_expr"] for each in undone] == ["18 4 * * *", *["17 4 * * *"] * 4]
        assert {each["window"]["duration"] for each in undone[1:]} == {"0s"}
    with signed_in(service, "eve", "read") as reader:
        assert reader.post(address, data=fields).status_code == 403
    with signed_in(service, "mallory") as other:
        assert other.post(address, data=fields).status_code == 400
    with signed_in(service, "eve") as browser:
        evil = {"origin": "https://evil.test", "sec-fetch-site": "cross-site"}
        assert browser.post(address, data=fields, headers=evil).status_code == 403


def test_only_an_admin_drains_a_worker_and_sees_it_before_and_after(service: httpx.Client) -> None:
    with signed_in(service, "root", "read write run admin") as admin:
        (address,) = [
            link["href"] for link in page_of(admin, "/ui/workers").all("a") if "drain" in link["href"]
        ]
        question = page_of(admin, address)
        assert "nothing starts until this one is resumed" in question.text
        target, fields = form_of(question)
        with signed_in(service) as ann:
            assert ann.get(address).status_code == 403
            assert ann.post(target, data=fields).status_code == 403
        assert admin.post(target, data=fields).status_code == 303
        wait_for(lambda: "drained" in page_of(admin, "/ui/workers").text)
        assert "no worker holds a lease: it is drained" in page_of(admin, "/ui/now").text
        target, fields = form_of(page_of(admin, "/ui/workers"))
        assert fields["drain"] == "no"
        assert admin.post(target, data=fields).status_code == 303
        wait_for(lambda: "with all 64 shards" in page_of(admin, "/ui/workers").text)
        assert page_of(admin, "/ui/audit?who=root").text.count("drain") >= 2
        assert admin.get("/ui/workers/drain?id=nobody").status_code == 404


def owned(sub: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token(sub)}"}


def added_for(service: httpx.Client, sub: str, name: str, **fields: object) -> str:
    """Create a schedule of a user."""
    document = {**DOCUMENT, "schedule_id": f"{sub}/{name}", **fields}
    service.post("/schedules/upsert", json=document, headers=owned(sub)).raise_for_status()
    return f"{sub}/{name}"
