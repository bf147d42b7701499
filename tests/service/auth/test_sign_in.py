"""Browsers sign in with a token, and executors report with that of their run."""

import html
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.service.auth import forge
from tests.service.executor import executing
from tests.service.server import serving
from tests.waiting import PATIENCE_S, wait_for

SIGNING = "another secret that is long enough to be one"


def token(**further: object) -> str:
    now = int(time.time())
    return forge.token(**{"iat": now, "exp": now + 600, **further})


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("login")
    with serving(folder, KRON_JWT_SECRET=forge.SECRET, KRON_SIGNING_SECRET=SIGNING) as (client, _):
        yield client


def test_a_browser_signs_in_and_out(client: httpx.Client) -> None:
    with httpx.Client(base_url=client.base_url, timeout=PATIENCE_S, trust_env=False) as browser:
        turned = browser.get("/")
        assert (turned.status_code, turned.headers["location"]) == (303, "/login")
        assert 'name="token"' in browser.get("/login").text
        answer = browser.post("/login", data={"token": token()})
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        said = answer.headers["set-cookie"].lower()
        assert "httponly" in said
        assert "samesite=strict" in said
        for page in ("/", "/ui/runs"):
            assert browser.get(page).status_code == 200
        page = html.unescape(browser.get("/").text)
        # A cookie is valid for pages only: changes need the header, so that no other site can send them.
        assert browser.get("/schedules").status_code == 401
        assert browser.post("/schedules/pause", json={"schedule_id": "x", "paused": True}).status_code == 401
        assert '<form class="caller" method="post" action="/logout"><bdi title="ann">ann</bdi>' in page
        assert '"schedule_id": "ann/hello"' in page
        assert "Authorization: Bearer $KRON_TOKEN" in page
        browser.post("/logout")
        assert browser.get("/").status_code == 303


def test_an_error_page_is_that_of_its_reader(client: httpx.Client) -> None:
    text = {"accept": "text/html"}
    with httpx.Client(base_url=client.base_url, timeout=PATIENCE_S, trust_env=False, headers=text) as browser:
        # Whether there is a page at an address is told only to those who have signed in.
        stranger = browser.get("/nowhere")
        assert stranger.status_code == 401
        assert '<a href="/login">Sign in</a>' in stranger.text
        browser.post("/login", data={"token": token()})
        missing, forbidden = browser.get("/nowhere"), browser.get("/ui/workers")
        assert (missing.status_code, forbidden.status_code) == (404, 403)
        for page in (missing, forbidden):
            assert '<bdi title="ann">ann</bdi>' in page.text
            assert 'href="/ui/workers"' not in page.text
        assert "Sign out" not in stranger.text
        assert 'href="/ui/workers"' not in stranger.text


def test_a_login_returns_to_the_page_that_was_requested(client: httpx.Client) -> None:
    with httpx.Client(base_url=client.base_url, timeout=PATIENCE_S, trust_env=False) as browser:
        wanted = "/ui/period?id=ann%2Fd%20x&at=2026-01-01T00%3A00%3A00Z"
        turned = browser.get(wanted)
        assert turned.status_code == 303
        form = browser.get(turned.headers["location"]).text
        assert f'name="next" value="{html.escape(wanted)}"' in form
        refused = browser.post("/login", data={"token": "wrong", "next": wanted})
        assert (refused.status_code, html.escape(wanted) in refused.text) == (401, True)
        answer = browser.post("/login", data={"token": token(), "next": wanted})
        assert (answer.status_code, answer.headers["location"]) == (303, wanted)
        away = browser.post("/login", data={"token": token(), "next": "//evil.example/ui/"})
        assert away.headers["location"] == "/"


def test_the_page_of_a_paused_schedule_names_the_caller_who_paused_it(client: httpx.Client) -> None:
    ann = {"Authorization": f"Bearer {token(scope='read write')}"}
    launcher = {"kind": "http", "url": "http://127.0.0.1:9/"}
    schedule: dict[str, object] = {
        "schedule_id": "ann/p",
        "cron_expr": "0 9 * * *",
        "timezone": "UTC",
        "launcher": launcher,
    }

    def put(path: str, document: dict[str, object]) -> None:
        client.post(path, json=document, headers=ann).raise_for_status()

    def is_named() -> bool:
        page = client.get("/ui/schedule", params={"id": "ann/p"}, headers=ann)
        return "Paused by <bdi>ann</bdi>: no run starts until the schedule is resumed." in page.text

    put("/schedules/upsert", schedule)
    assert not is_named()
    put("/schedules/pause", {"schedule_id": "ann/p", "paused": True})
    put("/schedules/upsert", {**schedule, "cron_expr": "0 10 * * *"})
    assert is_named()
    put("/schedules/pause", {"schedule_id": "ann/p", "paused": False})
    assert not is_named()
    put("/schedules/upsert", {**schedule, "paused": True})
    assert is_named()


@pytest.mark.parametrize(
    ("claims", "status", "said"),
    [
        ({"exp": 1}, 401, "expired"),
        ({"scope": "write"}, 403, "scope read"),
        ({"groups": ["g" * 190 + str(number) for number in range(20)]}, 401, "browsers do not store"),
    ],
)
def test_an_insufficient_token_is_not_stored_in_a_cookie(
    claims: dict[str, object], status: int, said: str, client: httpx.Client
) -> None:
    # Made here, not in the table: one made when the tests were collected may have expired by now.
    answer = client.post("/login", data={"token": token(**claims)})
    assert (answer.status_code, "set-cookie" in answer.headers) == (status, False)
    assert said in answer.text


@pytest.mark.parametrize("text", ["", "<script>alert(1)</script>"])
def test_a_text_that_is_not_a_token_is_not_stored_in_a_cookie(text: str, client: httpx.Client) -> None:
    answer = client.post("/login", data={"token": text})
    assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)
    assert "malformed" in answer.text
    assert "<script>alert" not in answer.text


@pytest.mark.parametrize(("site", "status"), [("cross-site", 403), ("same-site", 403), ("same-origin", 303)])
def test_no_other_site_can_sign_a_user_in_or_out(site: str, status: int, client: httpx.Client) -> None:
    headers = {"Sec-Fetch-Site": site}
    for path, form in (("/login", {"token": token()}), ("/logout", {})):
        answer = client.post(path, data=form, headers=headers)
        assert (answer.status_code, "set-cookie" in answer.headers) == (status, status == 303)


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_a_browser_that_sends_only_the_origin_is_checked_by_it(origin: str, client: httpx.Client) -> None:
    for path, form in (("/login", {"token": token()}), ("/logout", {})):
        answer = client.post(path, data=form, headers={"Origin": origin})
        assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
    own = {"Origin": str(client.base_url).rstrip("/")}
    assert client.post("/login", data={"token": token()}, headers=own).status_code == 303


def test_an_executor_reports_on_its_own_run_and_on_no_other(client: httpx.Client) -> None:
    ann = {"Authorization": f"Bearer {token()}"}
    with executing() as executor:
        launcher = {"kind": "http", "url": executor.url, "reports": True}
        schedule = {"schedule_id": "ann/x", "cron_expr": "0 9 * * *", "timezone": "UTC", "launcher": launcher}
        assert client.post("/schedules/upsert", json=schedule, headers=ann).status_code == 200
        keys = [
            client.post("/schedules/ann%2Fx/run", headers=ann).json()["idempotency_key"] for _ in range(2)
        ]
        wait_for(lambda: len(executor.sent) >= 2, lambda: executor.sent)
    tokens = {sent.headers["idempotency-key"]: sent.headers["kron-run-token"] for sent in executor.sent}
    one, other = keys

    def report(key: str, text: str) -> int:
        headers = {"Authorization": f"Bearer {text}"}
        return client.post(f"/runs/{key}/status", json={"status": "SUCCESS"}, headers=headers).status_code

    assert report(other, tokens[one]) == 401
    assert report(one, tokens[one]) == 200
    assert report(other, tokens[other]) == 200
    assert client.get("/schedules", headers={"Authorization": f"Bearer {tokens[one]}"}).status_code == 401
    runs = client.get("/schedules/ann%2Fx/runs", headers=ann).json()["runs"]
    assert {run["status"] for run in runs} == {"SUCCESS"}
