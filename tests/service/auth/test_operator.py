"""Wrong settings: each is an error at startup that names the setting and the remedy."""

import json
import os
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from kron.fronts.service.security import weaknesses
from kron.fronts.service.settings import read_settings
from kron.launchers.kubernetes.access import UNVERIFIED
from tests.service.auth import forge
from tests.service.auth.authority import Authority
from tests.service.server import KRON, process
from tests.tiers import mostly_slow
from tests.waiting import PATIENCE_S

SUBJECTS = json.dumps({"CN=ci": {"user_id": "ci", "scopes": ["read"]}})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    authority = Authority(tmp_path)
    for name in ("server", "other"):
        authority.certificate(name)
    key = load_pem_private_key((tmp_path / "server.key").read_bytes(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    (tmp_path / "locked.key").write_bytes(locked)
    (tmp_path / "junk").write_text("junk")
    (tmp_path / "secret").write_text("s" * 40)
    (tmp_path / "jwks.json").write_text(forge.jwks(forge.jwk("EdDSA")))
    return tmp_path


def tls(certificate: str = "server.crt", key: str = "server.key", **further: str) -> dict[str, str]:
    return {"KRON_TLS_CERTIFICATE": certificate, "KRON_TLS_KEY": key, **further}


@pytest.mark.parametrize(
    ("settings", "message"),
    mostly_slow(
        [
            ({"KRON_JWT_KEYS": "none.json"}, 'Invalid keys in "none.json": No such file'),
            ({"KRON_JWT_KEYS": "junk"}, 'Invalid keys in "junk": not JSON'),
            ({"KRON_JWT_KEYS": "http://[::/keys"}, "it is not an address"),
            ({"KRON_JWT_KEYS": "https://"}, "it is not an address"),
            ({"KRON_JWT_KEYS": "http://example.test/keys"}, "must start with https://"),
            ({"KRON_JWT_ISSUER": "https://issuer.test"}, "needs jwt_keys or jwt_secret_file too"),
            ({"KRON_JWT_AUDIENCE": "us"}, "needs jwt_keys or jwt_secret_file too"),
            ({"KRON_JWT_SECRET": "s" * 32, "KRON_JWT_SECRET_FILE": "secret"}, "jwt_secret is set too"),
            (
                {"KRON_SIGNING_SECRET": "s" * 32, "KRON_SIGNING_SECRET_FILE": "secret"},
                "signing_secret is set",
            ),
            (tls("none.crt"), 'Invalid tls_certificate "none.crt": No such file'),
            (tls(key="none.key"), 'Invalid tls_key "none.key": No such file'),
            (tls("junk"), 'Invalid tls_certificate "junk": it and tls_key must be'),
            (tls(key="other.key"), 'Invalid tls_certificate "server.crt": it and tls_key must be'),
            (tls(key="locked.key"), "without a password"),
            (
                tls(KRON_TLS_CLIENT_AUTHORITIES="none.pem", KRON_CLIENT_SUBJECTS=SUBJECTS),
                'Invalid tls_client_authorities "none.pem": No such file',
            ),
            (
                tls(KRON_TLS_CLIENT_AUTHORITIES="junk", KRON_CLIENT_SUBJECTS=SUBJECTS),
                'Invalid tls_client_authorities "junk": must be certificates as PEM',
            ),
            # Without subjects, every certificate would be admin.
            (tls(KRON_TLS_CLIENT_AUTHORITIES="authority.pem"), "needs client_subjects too"),
        ],
        fast=2,
    ),
)
def test_settings_that_cannot_work_are_an_error_at_startup(
    settings: dict[str, str], message: str, folder: Path
) -> None:
    with process("serve", "--port", "0", folder=folder, **settings) as server:
        assert server.ended() == 2
        said = "".join(server.log)
    assert message in said
    assert "Traceback" not in said
    assert "serving on" not in said


def test_an_identity_provider_that_is_down_keeps_nothing_from_running(folder: Path) -> None:
    settings = {"KRON_JWT_KEYS": "http://127.0.0.1:9/keys"}
    with process("serve", "--port", "0", folder=folder, **settings) as server:
        url = server.logged(r"serving on (http://\S+)")[1]
        server.logged("token keys cannot be loaded")
        token = {"Authorization": f"Bearer {forge.token('EdDSA', exp=4_000_000_000)}"}
        with httpx.Client(base_url=url, timeout=PATIENCE_S, trust_env=False) as client:
            assert client.get("/readyz").status_code == 200
            assert client.get("/schedules", headers=token).status_code == 401


def test_a_shared_secret_beside_certificates_lets_those_with_a_token_in(folder: Path) -> None:
    settings = tls(
        KRON_TLS_CLIENT_AUTHORITIES="authority.pem",
        KRON_CLIENT_SUBJECTS=SUBJECTS,
        KRON_JWT_SECRET=forge.SECRET,
    )
    trusted = ssl.create_default_context(cafile=str(folder / "authority.pem"))
    with process("serve", "--port", "0", folder=folder, **settings) as server:
        url = server.logged(r"serving on (https://\S+)")[1]
        token = {"Authorization": f"Bearer {forge.token(exp=4_000_000_000, iat=None)}"}
        with httpx.Client(base_url=url, verify=trusted, timeout=PATIENCE_S, trust_env=False) as client:
            assert client.get("/schedules", headers=token).status_code == 200
            assert client.get("/schedules").status_code == 401


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "text", "message"),
    [
        ("none.json", forge.token("EdDSA"), 'Invalid keys in "none.json": No such file'),
        ("jwks.json", "", "it contains no token"),
        ("jwks.json", "junk", "the token is malformed"),
    ],
)
def test_a_token_that_cannot_be_judged_is_not_blamed(
    keys: str, text: str, message: str, folder: Path
) -> None:
    environment = {**os.environ, "KRON_JWT_KEYS": keys}
    done = subprocess.run(
        [*KRON, "token", "show"],
        input=text, cwd=folder, env=environment, text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


@pytest.mark.slow
def test_a_command_without_a_token_names_the_variable_to_set(folder: Path) -> None:
    with process("serve", "--port", "0", folder=folder, KRON_JWT_KEYS="jwks.json") as server:
        url = server.logged(r"serving on (http://\S+)")[1]
        done = subprocess.run(
            [*KRON, "schedules", "list", "--server", url], text=True, capture_output=True, check=False
        )
    assert done.returncode == 2
    assert "Not authenticated: no token" in done.stderr
    assert "KRON_TOKEN" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "address",
    ["https://me:hunter2@[::/keys", "http://me:hunter2@example.test/", "https://me:hunter2@127.0.0.1:9/"],
)
def test_a_password_in_the_url_of_the_keys_is_never_printed(address: str, folder: Path) -> None:
    environment = {
        **os.environ, "KRON_JWT_KEYS": address, "KRON_STORE": "postgresql://db/kron?user=me&password=hunter2",
    }  # fmt: skip
    for words in (["config"], ["config", "--json"], ["token", "show"]):
        done = subprocess.run(
            [*KRON, *words],
            input=forge.token("EdDSA"),
            cwd=folder,
            env=environment,
            text=True,
            capture_output=True,
            check=False,
        )
        assert "hunter2" not in done.stdout + done.stderr
        assert "***@" in done.stdout + done.stderr


WEAK: dict[str, tuple[dict[str, str], str]] = {
    "insecure": (
        {"KRON_HOST": "0.0.0.0", "KRON_INSECURE": "true"},
        "insecure: listening on a public address without authentication: every caller is admin",
    ),
    "tls_certificate": (
        {"KRON_HOST": "0.0.0.0", "KRON_JWT_SECRET": forge.SECRET},
        "tls_certificate is not set: tokens cross the network readable, unless a proxy encrypts it",
    ),
    "allowed_commands": (
        {"KRON_ALLOWED_COMMANDS": "/bin/true,/bin/sh,/usr/bin/python3.11"},
        "allowed_commands has /bin/sh, /usr/bin/python3.11: every caller who may write can run any command",
    ),
    "allowed_launchers": (
        {"KRON_ALLOWED_LAUNCHERS": "mine"},
        "allowed_launchers has mine: their code runs here, their fields are stored as written",
    ),
    "inherited_variables": (
        {"KRON_INHERITED_VARIABLES": "B,A"},
        "inherited_variables: every process of a schedule can read A, B",
    ),
    "allowed_hosts": (
        {"KRON_ALLOWED_HOSTS": "example.com,93.184.216.0/24,10.0.0.0/8,127.0.0.1"},
        "allowed_hosts has 10.0.0.0/8, 127.0.0.1: schedules reach hosts that are not public",
    ),
    "requests_per_s": ({"KRON_REQUESTS_PER_S": "0"}, "requests_per_s is 0: no caller is limited"),
    "max_schedules": ({"KRON_MAX_SCHEDULES": "0"}, "max_schedules is 0: no user is limited"),
    "max_body": (
        {"KRON_MAX_BODY": "1073741824"},
        "max_body is 1073741824: the requests of one caller can fill the memory",
    ),
    "max_workflow_versions": (
        {"KRON_MAX_WORKFLOW_VERSIONS": "0"},
        "max_workflow_versions is 0: the workflows of a user are not limited",
    ),
    "max_open_runs": (
        {"KRON_MAX_OPEN_RUNS": "0"},
        "max_open_runs is 0: the open runs of a user are not limited",
    ),
    "metrics_host": (
        {"KRON_METRICS_HOST": "0.0.0.0", "KRON_METRICS_PORT": "0"},
        "metrics_host is a public address: metrics and health need no authentication there",
    ),
}


@pytest.mark.parametrize("name", WEAK)
def test_a_setting_that_weakens_something_has_a_sentence_and_only_that(name: str) -> None:
    variables, sentence = WEAK[name]
    assert weaknesses(read_settings(variables, {}).settings) == [sentence]


def test_a_link_to_a_shell_is_a_shell(tmp_path: Path) -> None:
    link = tmp_path / "nightly"
    link.symlink_to("/bin/sh")
    settings = read_settings({"KRON_ALLOWED_COMMANDS": f"{link},/bin/true"}, {}).settings
    assert weaknesses(settings) == [
        f"allowed_commands has {link}: every caller who may write can run any command"
    ]


@pytest.mark.parametrize(
    "path",
    ["/bin/sh", "/usr/bin/python3.11", "/usr/bin/crontab", "/bin/run-parts", "/lib64/ld-linux-x86-64.so.2"],
)
def test_programs_that_run_what_their_arguments_say_are_named(path: str) -> None:
    (sentence,) = weaknesses(read_settings({"KRON_ALLOWED_COMMANDS": path}, {}).settings)
    assert sentence.startswith(f"allowed_commands has {path}: ")


def unverified(folder: Path, *, skip: bool) -> Path:
    cluster = {"server": "https://127.0.0.1:9", "insecure-skip-tls-verify": skip}
    config = {
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test"}}],
        "clusters": [{"name": "test", "cluster": cluster}],
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(config))
    return file


@pytest.mark.parametrize("skip", [True, False])
def test_a_kubeconfig_that_verifies_no_certificate_is_a_weakness(skip: bool, tmp_path: Path) -> None:
    file = unverified(tmp_path, skip=skip)
    sentences = weaknesses(read_settings({"KRON_KUBERNETES": str(file)}, {}).settings)
    assert sentences == ([f"kubernetes: {UNVERIFIED}"] if skip else [])


def test_an_operator_says_at_its_start_that_its_cluster_is_not_verified(tmp_path: Path) -> None:
    file = unverified(tmp_path, skip=True)
    with process("operator", "--kubeconfig", str(file), "--port", "0", folder=tmp_path) as running:
        running.logged("probes and metrics")
        assert "".join(running.log).count(f"WARNING kron.operator {UNVERIFIED}\n") == 1


def test_the_defaults_weaken_nothing() -> None:
    assert weaknesses(read_settings({}, {}).settings) == []


@pytest.mark.slow
def test_a_service_and_a_worker_say_at_their_start_what_weakens_them(tmp_path: Path) -> None:
    chosen = {
        name: WEAK[name] for name in ("insecure", "allowed_commands", "inherited_variables", "allowed_hosts")
    }
    variables = {name: value for given, _ in chosen.values() for name, value in given.items()}
    for words in (["serve", "--port", "0"], ["worker", "--store", "sqlite:///other.db"]):
        with process(*words, folder=tmp_path, **variables) as running:
            running.logged("lease acquired")
            lines = "".join(running.log)
            for _, sentence in chosen.values():
                assert lines.count(f"WARNING kron.service {sentence}\n") == 1, lines
