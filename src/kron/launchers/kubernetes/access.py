"""Access to the API server of a cluster: by the service account of a pod, or by a kubeconfig."""

import os
import ssl
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kron.launchers.http.client import PORTS, HttpTarget, target_of
from kron.launchers.kubernetes.credentials import CredentialPlugin
from kron.launchers.kubernetes.kubeconfig import (
    REFUSED,
    Entry,
    InvalidAccessError,
    Kubeconfig,
    read_kubeconfigs,
)

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
KUBECONFIG = "KUBECONFIG"
USERS = "~/.kube/config"
DEFAULT_NAMESPACE = "default"
# The word of settings for the service account of the pod.
IN_CLUSTER = "in-cluster"
SKIP_VERIFY = "insecure-skip-tls-verify"
UNVERIFIED = (
    f"the kubeconfig has {SKIP_VERIFY}: any host on the way can pose as the cluster and read the token"
)


def _no_token() -> str | None:
    """Return no token: a client certificate, or nothing, identifies the caller."""


def _no_other() -> bool:
    """Return that there is no other credential than the one that was refused."""
    return False


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """The URL of an API server, the TLS context of its connections, and the token of each request.

    `token` is called for each request, because the tokens of service accounts are replaced every hour.
    `refused` is called when the server does not accept it, and returns whether another try may have more
    success. `server_name` is the name in the server's certificate if it is not the URL's, `proxy` the HTTP
    proxy of all connections.
    """

    server: str
    tls: ssl.SSLContext | None = None
    token: Callable[[], str | None] = field(default=_no_token)
    namespace: str = DEFAULT_NAMESPACE
    refused: Callable[[], bool] = field(default=_no_other)
    server_name: str | None = None
    proxy: HttpTarget | None = None

    @property
    def is_unverified(self) -> bool:
        """Say whether connections accept any certificate."""
        return self.tls is not None and self.tls.verify_mode == ssl.CERT_NONE


def find_access(kubeconfig: str | None = None, context: str | None = None) -> ClusterAccess:
    """Return the access of a given kubeconfig, else of `$KUBECONFIG`, else of the pod, else of the user.

    `$KUBECONFIG` is a list of files, which are merged.
    """
    if kubeconfig is not None:
        return from_kubeconfig(Path(kubeconfig).expanduser(), context)
    listed = [Path(each).expanduser() for each in os.environ.get(KUBECONFIG, "").split(os.pathsep) if each]
    if not listed and context is None and os.environ.get(HOST):
        return in_cluster(ACCOUNT)
    return _access_of(read_kubeconfigs(listed or [Path(USERS).expanduser()], optional=bool(listed)), context)


def access_named(word: str) -> ClusterAccess:
    """Return the access that a setting names: `in-cluster`, or the path of a kubeconfig."""
    return in_cluster(ACCOUNT) if word == IN_CLUSTER else from_kubeconfig(Path(word).expanduser())


def skips_verification(word: str) -> bool:
    """Return whether the kubeconfig that a setting names accepts any certificate; no plugin is run.

    One that cannot be read is an error where the cluster is used.
    """
    if word == IN_CLUSTER:
        return False
    try:
        config = read_kubeconfigs([Path(word).expanduser()])
        chosen = config.entry("context", config.current)
        return config.entry("cluster", chosen.get("cluster")).get(SKIP_VERIFY) is True
    except InvalidAccessError:
        return False


def in_cluster(account: Path) -> ClusterAccess:
    """Return the access of a pod by its service account."""
    host, port = os.environ.get(HOST, ""), os.environ.get(PORT, "443")
    try:
        tls = _trusting(ssl.create_default_context(cafile=str(account / "ca.crt")))
        namespace = (account / "namespace").read_text().strip()
    except OSError as cause:
        raise InvalidAccessError(
            f"The service account cannot be read: {cause}", path=str(account), reason=str(cause)
        ) from cause
    address = f"[{host}]" if ":" in host else host
    return ClusterAccess(
        f"https://{address}:{port}", tls, lambda: (account / "token").read_text().strip(), namespace
    )


def from_kubeconfig(path: Path, context: str | None = None) -> ClusterAccess:
    """Return the access of one context of a kubeconfig, by default the current one."""
    return _access_of(read_kubeconfigs([path]), context)


def _access_of(config: Kubeconfig, context: str | None) -> ClusterAccess:
    chosen = config.entry("context", context or config.current)
    cluster = config.entry("cluster", chosen.get("cluster"))
    user = config.entry("user", chosen["user"]) if chosen.get("user") else {}
    server = cluster.get("server")
    if not isinstance(server, str):
        raise config.invalid("the cluster has no server")
    for name, remedy in REFUSED.items():
        if user.get(name):
            raise config.invalid(f"{name} is not supported; {remedy}")
    settings = user.get("exec")
    plugin = CredentialPlugin(settings) if isinstance(settings, Mapping) else None
    if plugin is not None:
        user = {**user, **_certificate_of(config, plugin)}
    proxy = _proxy_of(config, cluster)
    is_secure = server.startswith("https:") or (proxy is not None and proxy.origin.scheme == "https")
    return ClusterAccess(
        server.rstrip("/"),
        _tls_of(config, cluster, user) if is_secure else None,
        _token_of(user) if plugin is None else plugin.token,
        str(chosen.get("namespace") or DEFAULT_NAMESPACE),
        _no_other if plugin is None else plugin.refused,
        str(cluster.get("tls-server-name") or "") or None,
        proxy,
    )


def _proxy_of(config: Kubeconfig, cluster: Entry) -> HttpTarget | None:
    """Return the HTTP proxy of a cluster's connections; messages do not show its password."""
    url = cluster.get("proxy-url")
    if not url:
        return None
    try:
        return target_of(str(url))
    except ValueError as cause:
        scheme = str(url).partition(":")[0]
        reason = "proxy-url has no host" if scheme in PORTS else f"proxy-url: {scheme} is not supported"
        raise config.invalid(f"{reason}; give the URL of a proxy of the scheme http or https") from cause


def _certificate_of(config: Kubeconfig, plugin: CredentialPlugin) -> dict[str, str]:
    """Return the client certificate of a credential plugin as a kubeconfig spells it, if there is one."""
    try:
        credential = plugin.credential()
    except ValueError as cause:
        raise config.invalid(str(cause)) from cause
    parts = {"certificate": "clientCertificateData", "key": "clientKeyData"}
    given = {name: credential[part] for name, part in parts.items() if credential.get(part)}
    return {f"client-{name}-data": b64encode(str(text).encode()).decode() for name, text in given.items()}


def _token_of(user: Entry) -> Callable[[], str | None]:
    """Return the token of a user; a file counts more than a text, because it is kept up to date."""
    token, file = user.get("token"), user.get("tokenFile")
    if isinstance(file, str) and file:
        return lambda: Path(file).read_text().strip()
    return (lambda: token) if isinstance(token, str) and token else _no_token


def _tls_of(config: Kubeconfig, cluster: Entry, user: Entry) -> ssl.SSLContext:
    """Return the TLS context: the cluster's authority, and the user's certificate if there is one."""
    try:
        authority = _bytes_of(cluster, "certificate-authority")
        tls = _trusting(ssl.create_default_context(cadata=None if authority is None else authority.decode()))
        if cluster.get(SKIP_VERIFY) is True:
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        certificate, key = (_bytes_of(user, f"client-{part}") for part in ("certificate", "key"))
        if certificate is not None and key is not None:
            _load_certificate(tls, certificate, key)
    except (OSError, ValueError) as cause:
        raise config.invalid(str(cause)) from cause
    return tls


def _trusting(tls: ssl.SSLContext) -> ssl.SSLContext:
    """Return a context that accepts the certificates of clusters, as kubectl does.

    Since Python 3.13 a context is strict by default, and refuses authorities without some extensions that
    many clusters do not have. Names and signatures are checked all the same.
    """
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return tls


def _bytes_of(holder: Entry, name: str) -> bytes | None:
    """Return a value that a kubeconfig has either in it or in a file beside it; an empty one is none."""
    data, file = holder.get(f"{name}-data"), holder.get(name)
    if isinstance(data, str) and data:
        return b64decode(data)
    return Path(file).read_bytes() if isinstance(file, str) and file else None


def _load_certificate(tls: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate with its key; Python reads them from files only, so there is one for a moment."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate + b"\n" + key)
        file.flush()
        tls.load_cert_chain(file.name)
