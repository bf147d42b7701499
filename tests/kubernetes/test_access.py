"""How a cluster is reached: kubeconfigs, merged as kubectl merges them, credentials, names and proxies."""

import asyncio
import json
import os
import ssl
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from kron.launchers.kubernetes import access as access_module
from kron.launchers.kubernetes.access import ClusterAccess, find_access, from_kubeconfig
from kron.launchers.kubernetes.api import JOBS, KRONJOBS, ApiClient, ApiUnavailableError
from kron.launchers.kubernetes.kubeconfig import InvalidAccessError
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.cluster import running_cluster
from tests.service.auth.authority import Authority


def written(
    path: Path,
    *,
    current: str | None = None,
    contexts: dict[str, Any] | None = None,
    clusters: dict[str, Any] | None = None,
    users: dict[str, Any] | None = None,
) -> Path:
    """Write a kubeconfig; entries are given by their names."""
    document: dict[str, Any] = {} if current is None else {"current-context": current}
    for kind, entries in (("context", contexts), ("cluster", clusters), ("user", users)):
        document[f"{kind}s"] = [{"name": name, kind: entry} for name, entry in (entries or {}).items()]
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(yaml.safe_dump(document))
    return path


def with_cluster(path: Path, cluster: dict[str, Any], user: dict[str, Any] | None = None) -> Path:
    """Write a kubeconfig with one context."""
    return written(
        path,
        current="test",
        contexts={"test": {"cluster": "c", "user": "u"}},
        clusters={"c": cluster},
        users={"u": user or {}},
    )


async def test_a_kubeconfig_leads_to_a_cluster(tmp_path: Path) -> None:
    async with running_cluster() as cluster:
        cluster.server.token = "secret"
        config = {
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
            "clusters": [{"name": "c", "cluster": {"server": cluster.server.url}}],
            "users": [{"name": "u", "user": {"token": "secret"}}],
        }
        file = tmp_path / "config"
        file.write_text(yaml.safe_dump(config))
        access = from_kubeconfig(file)
        assert (access.namespace, isinstance(access, ClusterAccess)) == ("team", True)
        api = ApiClient(access)
        assert (await api.list(KRONJOBS)).items == []
        api.close()


def with_plugin(folder: Path, server: str, script: str) -> Path:
    """Write a kubeconfig whose user is a credential plugin."""
    plugin = {"command": "sh", "args": ["-c", script], "env": [{"name": "FOLDER", "value": str(folder)}]}
    config = {
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"exec": plugin}}],
    }
    file = folder / "config"
    file.write_text(yaml.safe_dump(config))
    return file


async def test_a_credential_plugin_is_run_again_when_its_token_is_refused(tmp_path: Path) -> None:
    script = """
        echo "$KUBERNETES_EXEC_INFO" >> "$FOLDER/runs"
        printf '{"kind": "ExecCredential", "status": {"token": "%s"}}' "$(cat "$FOLDER/token")"
    """
    (tmp_path / "token").write_text("first")
    async with running_cluster() as cluster:
        cluster.server.token = "first"
        api = ApiClient(from_kubeconfig(with_plugin(tmp_path, cluster.server.url, script)))
        for token in ("first", "first", "second"):
            cluster.server.token = token
            (tmp_path / "token").write_text(token)
            assert (await api.list(KRONJOBS)).items == []
        api.close()
    runs = [json.loads(line) for line in (tmp_path / "runs").read_text().splitlines()]
    assert [each["kind"] for each in runs] == ["ExecCredential"] * 2


@pytest.mark.parametrize(
    ("script", "reason"), [("echo secret >&2; exit 3", "status 3"), ("echo secret", "no credential")]
)
def test_a_credential_plugin_that_fails_is_named_without_its_output(
    tmp_path: Path, script: str, reason: str
) -> None:
    with pytest.raises(InvalidAccessError, match=reason) as failed:
        from_kubeconfig(with_plugin(tmp_path, "http://127.0.0.1:1", script))
    assert "secret" not in str(failed.value)


@pytest.mark.parametrize("token", ["", "old"])
def test_the_file_of_a_token_counts_more_than_its_text(tmp_path: Path, token: str) -> None:
    (tmp_path / "token").write_text("first\n")
    user = {"token": token, "tokenFile": "token"}
    access = from_kubeconfig(with_cluster(tmp_path / "config", {"server": "http://127.0.0.1:1"}, user))
    assert access.token() == "first"
    (tmp_path / "token").write_text("second\n")
    assert access.token() == "second"


def test_an_empty_field_is_one_that_is_not_given(tmp_path: Path) -> None:
    cluster = {
        "server": "https://127.0.0.1:1",
        "certificate-authority-data": "",
        "certificate-authority": str(Authority(tmp_path).path),
    }
    user = {"token": "", "client-certificate-data": "", "client-certificate": "", "client-key": ""}
    access = from_kubeconfig(with_cluster(tmp_path / "config", cluster, user))
    assert access.token() is None
    assert access.tls is not None
    assert access.tls.cert_store_stats()["x509_ca"] == 1


# --- several files ---------------------------------------------------------------------------------------


@pytest.fixture
def kubeconfigs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set $KUBECONFIG."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    def given(*paths: Path | str) -> None:
        monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, paths)))

    return given


def test_of_entries_with_one_name_the_first_counts_whole(tmp_path: Path, kubeconfigs: Any) -> None:
    first = written(
        tmp_path / "a" / "config",
        contexts={"both": {"cluster": "c", "user": "u"}},
        users={"u": {}},  # even if a later one has fields that the first has not
    )
    second = written(
        tmp_path / "b" / "config",
        current="mine",
        contexts={"mine": {"cluster": "c", "user": "u", "namespace": "team"}},
        clusters={"c": {"server": "http://second.example/"}},
        users={"u": {"token": "second"}},
    )
    third = written(
        tmp_path / "c" / "config",
        current="both",
        contexts={"mine": {"cluster": "c", "namespace": "other"}},
        clusters={"c": {"server": "http://third.example"}, "d": {"server": "http://d.example"}},
    )
    kubeconfigs(first, "", second, third, second, tmp_path / "missing")
    found = find_access()
    assert (found.server, found.namespace, found.token()) == ("http://second.example", "team", None)
    assert find_access(context="both").namespace == "default"
    assert find_access(str(third), "mine").server == "http://third.example", "a given file is not merged"


def test_files_are_relative_to_the_kubeconfig_that_names_them(tmp_path: Path, kubeconfigs: Any) -> None:
    with_cluster(tmp_path / "a" / "config", {"server": "http://a.example"}, {"tokenFile": "secrets/token"})
    for folder, token in (("a", "right"), ("b", "wrong")):
        (tmp_path / folder / "secrets").mkdir(parents=True)
        (tmp_path / folder / "secrets" / "token").write_text(f"{token}\n")
    written(tmp_path / "b" / "config")
    kubeconfigs(tmp_path / "b" / "config", tmp_path / "a" / "config")
    assert find_access().token() == "right"


def test_a_plugin_with_a_relative_path_is_beside_its_kubeconfig(tmp_path: Path, kubeconfigs: Any) -> None:
    plugin = tmp_path / "a" / "bin" / "plugin"
    plugin.parent.mkdir(parents=True)
    plugin.write_text("""#!/bin/sh\necho '{"status": {"token": "of the plugin"}}'\n""")
    plugin.chmod(0o700)
    user = {"exec": {"command": "./bin/plugin"}}
    kubeconfigs(with_cluster(tmp_path / "a" / "config", {"server": "http://a.example"}, user))
    assert find_access().token() == "of the plugin"


def test_kubeconfig_is_asked_before_the_pod(
    tmp_path: Path, kubeconfigs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfigs(with_cluster(tmp_path / "config", {"server": "http://a.example"}))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert find_access().server == "http://a.example"
    kubeconfigs()
    monkeypatch.setattr(access_module, "ACCOUNT", tmp_path / "account")
    with pytest.raises(InvalidAccessError, match="service account"):
        find_access()


@pytest.mark.parametrize(
    ("cluster", "user", "reason"),
    [
        ({"server": 5}, {}, "has no server"),
        ({"proxy-url": "socks5://ann:secret@proxy.example"}, {}, "proxy-url: socks5 .* http or https"),
        ({"proxy-url": "http://"}, {}, "proxy-url has no host"),
        ({}, {"auth-provider": {"name": "gcp"}}, "auth-provider is not supported; use exec"),
        ({}, {"username": "ann", "password": "secret"}, "username is not supported"),
        ({}, {"as": "admin"}, "as is not supported"),
    ],
)
def test_what_is_not_supported_is_named_with_what_to_do(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidAccessError, match=reason) as failed:
        from_kubeconfig(with_cluster(tmp_path / "config", {"server": "https://a.example", **cluster}, user))
    assert "secret" not in str(failed.value)


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "No such file"), ("[1]", "not a mapping"), ("", "no context None")]
)
def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, kubeconfigs: Any, content: str | None, reason: str
) -> None:
    file = tmp_path / "config"
    if content is not None:
        file.write_text(content)
    with pytest.raises(InvalidAccessError, match=reason) as failed:
        from_kubeconfig(file)
    assert str(file) in str(failed.value)
    kubeconfigs(tmp_path / "x", tmp_path / "y")
    with pytest.raises(InvalidAccessError, match="no such file"):
        find_access()


# --- names and proxies -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def served(authority: Authority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.certificate("server"))
    return context


class Proxy:
    """A proxy that connects every name to one port of the loopback interface, if the login is right."""

    def __init__(self, port: int) -> None:
        self.heads: list[list[str]] = []
        self.login: str | None = None
        self._port = port
        self._pipes: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    @asynccontextmanager
    async def running(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        server.close()
        for pipe in self._pipes:
            pipe.cancel()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0.01)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        self.heads.append(head)
        given = [line.split()[-1] for line in head if line.startswith("Proxy-Authorization: Basic ")]
        if self.login is not None and [b64decode(each).decode() for each in given] != [self.login]:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            writer.close()
            return
        self._writers.append(writer)
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers.append(back)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        for source, sink in ((reader, back), (there, writer)):
            self._pipes.add(asyncio.create_task(_copied(source, sink)))


async def _copied(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(65_536):
            sink.write(data)
    sink.close()


async def listed(access: ClusterAccess) -> int:
    """Return how many Jobs a cluster has, asked twice over one connection."""
    api = ApiClient(access, request_s=5)
    try:
        found = await api.list(JOBS)
        assert await api.list(JOBS) == found
        return len(found.items)
    finally:
        api.close()
        await asyncio.sleep(0.01)


async def test_a_server_is_known_by_the_name_that_the_kubeconfig_has(
    tmp_path: Path, authority: Authority, served: ssl.SSLContext
) -> None:
    names: list[str | None] = []
    served.sni_callback = lambda _, name, __: names.append(name)
    async with ApiServer().running(served) as server:
        cluster = {"server": server.url, "certificate-authority": str(authority.path)}
        right = from_kubeconfig(with_cluster(tmp_path / "a", {**cluster, "tls-server-name": "localhost"}))
        assert await listed(right) == 0
        wrong = from_kubeconfig(with_cluster(tmp_path / "b", {**cluster, "tls-server-name": "other.example"}))
        with pytest.raises(ApiUnavailableError, match=r"not valid for 'other\.example'"):
            await listed(wrong)
    assert names == ["localhost", "other.example"]


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("is_secure", [True, False])
async def test_a_cluster_is_reached_through_a_proxy(
    tmp_path: Path, authority: Authority, served: ssl.SSLContext, scheme: str, is_secure: bool
) -> None:
    """The proxy resolves the server's name, which exists nowhere else, and sees nothing but bytes."""
    async with ApiServer().running(served if is_secure else None) as server:
        at = urlsplit(server.url)
        proxy = Proxy(at.port or 0)
        proxy.login = "ann:p@ss"
        async with proxy.running(served if scheme == "https" else None) as place:
            cluster = {
                "server": f"{at.scheme}://kubernetes.example:6443",
                "certificate-authority": str(authority.path),
                "tls-server-name": "localhost",
                "proxy-url": f"{scheme}://ann:p%40ss@{place}",
            }
            found = from_kubeconfig(with_cluster(tmp_path / "config", cluster))
            assert await listed(found) == 0
            assert [head[0] for head in proxy.heads] == ["CONNECT kubernetes.example:6443 HTTP/1.1"]
            proxy.login = "ben:other"
            with pytest.raises(ApiUnavailableError, match="refuses with status 407") as failed:
                await listed(found)
            assert "p@ss" not in str(failed.value)
    with pytest.raises(ApiUnavailableError, match=r"the proxy .* cannot be used: Connection refused"):
        await listed(found)
