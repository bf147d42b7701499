"""A service without authentication is closed to the web pages that its owner visits, over real HTTP."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.service.auth import forge
from tests.service.server import serving
from tests.waiting import wait_for

NDJSON = {"content-type": "application/x-ndjson"}
YEARLY = {"workflow_id": "wf", "version": 1, "user_id": "ann", "cron_expr": "0 0 1 1 *", "timezone": "UTC"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sites")


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[httpx.Client]:
    with serving(folder, KRON_ALLOWED_COMMANDS="/usr/bin/touch", KRON_TRUSTED_HOSTS="Kron.example") as (
        client,
        _,
    ):
        yield client


def own(client: httpx.Client) -> str:
    return f"127.0.0.1:{client.base_url.port}"


def touching(path: Path, name: str) -> str:
    launcher = {"kind": "process", "command": ["/usr/bin/touch", str(path)]}
    schedule = {"schedule_id": name, "cron_expr": "* * * * * *", "timezone": "UTC", "launcher": launcher}
    return json.dumps(schedule)


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Origin": "https://evil.example"}, id="another origin"),
        pytest.param({"Origin": "null"}, id="a sandboxed frame"),
        pytest.param({"Origin": "http://127.0.0.1:3000"}, id="another port"),
        pytest.param({"Origin": "http://[oops"}, id="no URL"),
        pytest.param({"Origin": "moz-extension://{own}"}, id="an extension"),
        pytest.param({"Origin": "//{own}"}, id="no scheme"),
        pytest.param({"Origin": "http://{own}#.evil.example"}, id="more than an origin"),
        pytest.param({"Origin": "http://{own}@evil.example"}, id="a user name"),
        pytest.param({"Sec-Fetch-Site": "cross-site"}, id="another site"),
        pytest.param({"Sec-Fetch-Site": "same-site"}, id="another subdomain or port"),
        pytest.param({"Sec-Fetch-Site": "same-origin", "Origin": "https://evil.example"}, id="both differ"),
    ],
)
def test_a_page_of_another_site_can_write_nothing(headers: dict[str, str], client: httpx.Client) -> None:
    headers = {name: value.format(own=own(client)) for name, value in headers.items()}
    # Each is sent as JSON too, so that only the origin can be the reason.
    for path, content in (
        ("/schedules/upsert", json.dumps({**YEARLY, "schedule_id": "foreign"})),
        ("/schedules/foreign/run", ""),
        ("/schedules/pause", '{"schedule_id": "foreign", "paused": true}'),
    ):
        kind = {"content-type": "application/json"}
        answer = client.post(path, content=content, headers={**headers, **kind})
        assert (answer.status_code, answer.json()["detail"]) == (
            403,
            "the request comes from a page of another site",
        )
    assert client.delete("/schedules/foreign", headers=headers).status_code == 403
    bulk = client.post(
        "/schedules/bulk", content=touching(Path("never"), "foreign"), headers=headers | NDJSON
    )
    assert bulk.status_code == 403
    assert client.get("/schedules/foreign").status_code == 404


def test_the_pages_of_the_service_and_programs_write(client: httpx.Client) -> None:
    for number, headers in enumerate(
        (
            {},
            {"Origin": f"http://{own(client)}", "Sec-Fetch-Site": "same-origin"},
            {"Origin": "https://kron.example", "Host": "KRON.example"},
            {"Origin": "http://kron.example", "Host": "kron.example:80"},
        )
    ):
        document = {**YEARLY, "schedule_id": f"own-{number}"}
        assert client.post("/schedules/upsert", json=document, headers=headers).status_code == 200, headers


@pytest.mark.parametrize("kind", ["text/plain", "text/plain;charset=UTF-8", "multipart/form-data", None])
def test_no_program_starts_from_a_body_that_a_page_can_send_unasked(
    kind: str | None, client: httpx.Client, folder: Path
) -> None:
    # Old browsers may send neither Origin nor Sec-Fetch-Site; the media type alone stops them.
    headers = {} if kind is None else {"content-type": kind}
    answer = client.post("/schedules/bulk", content=touching(folder / "stolen", "stolen"), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    assert answer.json()["detail"].startswith(
        "the body must be sent with the header content-type: application/x-ndjson or "
    )
    upsert = client.post("/schedules/upsert", content=touching(folder / "stolen", "stolen"), headers=headers)
    assert (upsert.status_code, upsert.json()["detail"]) == (
        415,
        "the body must be sent with the header content-type: application/json",
    )
    assert client.get("/schedules/stolen").status_code == 404


def test_a_media_type_that_is_json_by_its_suffix_is_read_where_json_is(client: httpx.Client) -> None:
    document, headers = {**YEARLY, "schedule_id": "suffix"}, {"content-type": "application/merge-patch+json"}
    assert client.post("/schedules/upsert", json=document, headers=headers).status_code == 200
    refused = client.post("/schedules/bulk", json=document, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize(
    "kind",
    [
        "application/x-ndjson",
        "application/ndjson",
        "application/jsonl; charset=utf-8",
        "application/x-jsonlines",
    ],
)
def test_lines_of_the_documented_media_types_are_stored(kind: str, client: httpx.Client) -> None:
    line = json.dumps({**YEARLY, "schedule_id": kind})
    answer = client.post("/schedules/bulk", content=line, headers={"content-type": kind})
    assert answer.json() == {"upserted": 1, "batches": 1}


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "192.168.1.4",
        "",
        "a,b",
        "[::2]:80",
        # None of them is a name or an address with a port.
        "localhost:80@evil.example",
        "[::1]evil.example",
        "[127.0.0.1].evil.example:80",
        "[localhost]",
        "localhost:",
        "localhost:x",
        "user@localhost",
        "localhost.",
    ],
)
def test_a_name_that_was_rebound_to_this_address_reads_and_writes_nothing(
    host: str, client: httpx.Client
) -> None:
    headers = {"Host": host}
    for method, path in (("GET", "/schedules"), ("GET", "/"), ("POST", "/schedules/x/run")):
        answer = client.request(method, path, headers=headers)
        assert answer.status_code == 421, path
    assert client.get("/schedules", headers=headers).json()["detail"] == (
        f'this service does not answer for the host "{host}"; trusted_hosts has to list it'
    )
    # Probes of a cluster name the host as they like.
    assert client.get("/healthz", headers=headers).status_code == 200


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "127.9.9.9", "[::1]:8080", "KRON.example:443"])
def test_loopback_and_the_trusted_names_are_answered(host: str, client: httpx.Client) -> None:
    assert client.get("/schedules", headers={"Host": host}).status_code == 200


def test_with_authentication_any_host_is_answered_until_some_are_listed(tmp_path: Path) -> None:
    headers = {"Host": "kron.example", "Origin": "https://portal.example"}
    now = int(time.time())
    token = forge.token(iat=now, exp=now + 600, scope="admin")
    headers |= {"Authorization": f"Bearer {token}"}
    for number, (trusted, status) in enumerate(((None, 200), ("other.example", 421))):
        folder = tmp_path / str(number)
        folder.mkdir()
        listed = {} if trusted is None else {"KRON_TRUSTED_HOSTS": trusted}
        with serving(folder, KRON_JWT_SECRET=forge.SECRET, **listed) as (client, _):
            document = {**YEARLY, "schedule_id": "x"}
            answer = client.post("/schedules/upsert", json=document, headers=headers)
            assert answer.status_code == status, answer.text


def test_an_allowed_program_starts_for_the_owner_of_the_machine(client: httpx.Client, folder: Path) -> None:
    line = touching(folder / "touched", "touching")
    client.post("/schedules/bulk", content=line, headers=NDJSON).raise_for_status()
    wait_for((folder / "touched").exists)
    client.delete("/schedules/touching").raise_for_status()
