"""Client certificates: a real server over TLS, and the callers it accepts."""

import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.service.auth import forge
from tests.service.auth.authority import Authority
from tests.service.server import process
from tests.tiers import mostly_slow
from tests.waiting import PATIENCE_S

SUBJECTS = {
    "CN=ci,O=Example": {"user_id": "ci", "scopes": ["read", "write"]},
    "CN=root": {"user_id": "ops", "scopes": ["admin"]},
    "CN=reader": {"user_id": "ann", "scopes": ["read"], "groups": ["team"]},
}
SCHEDULE = {
    "schedule_id": "ci/daily", "cron_expr": "0 9 * * *", "timezone": "UTC", "launcher": {"kind": "log"},
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder)


@pytest.fixture(scope="module")
def url(folder: Path, authority: Authority) -> Iterator[str]:
    certificate, key = authority.certificate("server")
    settings = {
        "KRON_STORE": "sqlite:///kron.db",
        "KRON_TLS_CERTIFICATE": certificate,
        "KRON_TLS_KEY": key,
        "KRON_TLS_CLIENT_AUTHORITIES": str(authority.path),
        "KRON_CLIENT_SUBJECTS": json.dumps(SUBJECTS),
    }
    with process("serve", "--port", "0", "--host", "0.0.0.0", folder=folder, **settings) as server:
        port = server.logged(r"serving on https://\S+:(\d+)")[1]
        yield f"https://127.0.0.1:{port}"


def client_of(url: str, authority: Authority, files: tuple[str, str] | None = None) -> httpx.Client:
    trusted = ssl.create_default_context(cafile=str(authority.path))
    if files is not None:
        trusted.load_cert_chain(*files)
    return httpx.Client(base_url=url, verify=trusted, timeout=PATIENCE_S, trust_env=False)


def test_a_known_certificate_has_its_scopes(url: str, authority: Authority) -> None:
    with client_of(url, authority, authority.certificate("ci", "Example")) as client:
        assert client.post("/schedules/upsert", json=SCHEDULE).status_code == 200
        assert client.get("/schedules").json()["schedules"][0]["user_id"] == "ci"
        assert client.post("/schedules/ci%2Fdaily/run").status_code == 403
    with client_of(url, authority, authority.certificate("reader")) as client:
        assert client.get("/schedules").json()["schedules"] == []
        refusal = client.post("/schedules/upsert", json=SCHEDULE)
        assert (refusal.status_code, refusal.json()["code"]) == (403, "forbidden")


def test_a_certificate_may_be_an_admins(url: str, authority: Authority) -> None:
    with client_of(url, authority, authority.certificate("ci", "Example")) as client:
        client.post("/schedules/upsert", json=SCHEDULE).raise_for_status()
    with client_of(url, authority, authority.certificate("root")) as client:
        assert [each["schedule_id"] for each in client.get("/schedules").json()["schedules"]] == ["ci/daily"]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("ci", id="a part of a known one"),
        pytest.param("ci,O=Example", id="a name that is written as two"),
        pytest.param("ci\\,O=Example", id="and one that escapes itself"),
    ],
)
def test_an_unknown_subject_is_not_authenticated(name: str, url: str, authority: Authority) -> None:
    with client_of(url, authority, authority.certificate(name)) as client:
        refusal = client.get("/schedules")
    assert (refusal.status_code, refusal.json()["code"]) == (401, "unauthenticated")
    assert "client_subjects has no entry for the certificate of CN=ci" in refusal.json()["detail"]


@pytest.mark.parametrize("fault", ["none", "other authority", "expired"])
def test_without_a_valid_certificate_the_connection_is_refused(
    fault: str, url: str, authority: Authority, tmp_path: Path
) -> None:
    files = None
    if fault == "other authority":
        files = Authority(tmp_path, "other").certificate("ci", "Example")
    if fault == "expired":
        files = authority.certificate("late", expired=True)
    with client_of(url, authority, files) as client, pytest.raises(httpx.TransportError):
        client.get("/healthz")


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["EdDSA", "HS256"])
def test_tokens_and_certificates_can_be_used_side_by_side(
    algorithm: str, folder: Path, authority: Authority
) -> None:
    certificate, key = authority.certificate("server2")
    keys = folder / "jwks.json"
    keys.write_text(forge.jwks(forge.jwk("EdDSA")))
    by = {"EdDSA": {"KRON_JWT_KEYS": str(keys)}, "HS256": {"KRON_JWT_SECRET": forge.SECRET}}
    settings = {
        "KRON_STORE": f"sqlite:///both-{algorithm}.db",
        "KRON_TLS_CERTIFICATE": certificate,
        "KRON_TLS_KEY": key,
        "KRON_TLS_CLIENT_AUTHORITIES": str(authority.path),
        "KRON_CLIENT_SUBJECTS": json.dumps(SUBJECTS),
        **by[algorithm],
    }
    with process("serve", "--port", "0", folder=folder, **settings) as server:
        url = f"https://127.0.0.1:{server.logged(r'serving on https://[^:]+:([0-9]+)')[1]}"
        with client_of(url, authority) as client:
            assert client.get("/healthz").status_code == 200
            assert client.get("/schedules").status_code == 401
            token = forge.token(algorithm, exp=4_000_000_000, iat=None)
            answer = client.get("/schedules", headers={"Authorization": f"Bearer {token}"})
            assert answer.status_code == 200
        with client_of(url, authority, authority.certificate("reader")) as client:
            assert client.get("/schedules").status_code == 200
            wrong = client.get("/schedules", headers={"Authorization": "Bearer a.b.c"})
            assert wrong.status_code == 401


@pytest.mark.parametrize(
    ("settings", "message"),
    mostly_slow(
        [
            ({"KRON_TLS_KEY": "key.pem"}, "needs tls_certificate too"),
            ({"KRON_TLS_CERTIFICATE": "cert.pem"}, "needs tls_key too"),
            ({"KRON_CLIENT_SUBJECTS": json.dumps(SUBJECTS)}, "needs tls_client_authorities too"),
            ({"KRON_CLIENT_SUBJECTS": '{"CN=ci": {"scopes": ["reed"]}}'}, "scopes must be a list of"),
            ({"KRON_HOST": "0.0.0.0"}, "without authentication"),
        ],
        fast=1,
    ),
)
def test_settings_that_do_not_go_together_are_refused(
    settings: dict[str, str], message: str, tmp_path: Path
) -> None:
    with process("serve", "--port", "0", folder=tmp_path, **settings) as server:
        assert server.ended() == 2
        assert message in "".join(server.log)
