"""Access to the API server of a cluster: by the service account of a pod, or by a kubeconfig."""

import os
import ssl
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kron.core.errors import InputError
from kron.launchers.kubernetes.credentials import CredentialPlugin

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
KUBECONFIG = "KUBECONFIG"
DEFAULT_NAMESPACE = "default"
# The word of settings for the service account of the pod.
IN_CLUSTER = "in-cluster"


class InvalidAccessError(InputError):
    """A kubeconfig or a service account cannot be used."""

    code = "invalid_kubeconfig"


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
    success.
    """

    server: str
    tls: ssl.SSLContext | None = None
    token: Callable[[], str | None] = field(default=_no_token)
    namespace: str = DEFAULT_NAMESPACE
    refused: Callable[[], bool] = field(default=_no_other)


def find_access(kubeconfig: str | None = None, context: str | None = None) -> ClusterAccess:
    """Return the access of a given kubeconfig, else of the pod, else of the user's kubeconfig."""
    if kubeconfig is None and context is None and os.environ.get(HOST):
        return in_cluster(ACCOUNT)
    given = kubeconfig or os.environ.get(KUBECONFIG) or "~/.kube/config"
    return from_kubeconfig(Path(given).expanduser(), context)


def access_named(word: str) -> ClusterAccess:
    """Return the access that a setting names: `in-cluster`, or the path of a kubeconfig."""
    return in_cluster(ACCOUNT) if word == IN_CLUSTER else from_kubeconfig(Path(word).expanduser())


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
    import yaml

    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, ValueError, yaml.YAMLError) as cause:
        raise _invalid(path, str(cause)) from cause
    if not isinstance(document, Mapping):
        raise _invalid(path, "it is no mapping")
    chosen = _named(path, document, "context", context or document.get("current-context"))
    cluster = _named(path, document, "cluster", chosen.get("cluster"))
    user = _named(path, document, "user", chosen["user"]) if chosen.get("user") else {}
    server = cluster.get("server")
    if not isinstance(server, str):
        raise _invalid(path, "the cluster has no server")
    if "auth-provider" in user:
        raise _invalid(path, "auth-provider is not supported; use exec, a token or a client certificate")
    settings = user.get("exec")
    plugin = CredentialPlugin(settings) if isinstance(settings, Mapping) else None
    if plugin is not None:
        user = {**user, **_certificate_of(path, plugin)}
    return ClusterAccess(
        server.rstrip("/"),
        _tls_of(path, cluster, user) if server.startswith("https:") else None,
        _token_of(path, user) if plugin is None else plugin.token,
        str(chosen.get("namespace") or DEFAULT_NAMESPACE),
        _no_other if plugin is None else plugin.refused,
    )


def _certificate_of(path: Path, plugin: CredentialPlugin) -> dict[str, str]:
    """Return the client certificate of a credential plugin as a kubeconfig spells it, if there is one."""
    try:
        credential = plugin.credential()
    except ValueError as cause:
        raise _invalid(path, str(cause)) from cause
    parts = {"certificate": "clientCertificateData", "key": "clientKeyData"}
    given = {name: credential[part] for name, part in parts.items() if credential.get(part)}
    return {f"client-{name}-data": b64encode(str(text).encode()).decode() for name, text in given.items()}


def _invalid(path: Path, reason: str) -> InvalidAccessError:
    return InvalidAccessError(f"{path} cannot be used: {reason}", path=str(path), reason=reason)


def _named(path: Path, document: Mapping[object, object], kind: str, name: object) -> Mapping[str, object]:
    """Return the entry of a kubeconfig's list that has a name."""
    entries = document.get(f"{kind}s")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and entry.get("name") == name:
            value = entry.get(kind)
            return value if isinstance(value, Mapping) else {}
    raise _invalid(path, f"it has no {kind} {name!r}")


def _token_of(path: Path, user: Mapping[str, object]) -> Callable[[], str | None]:
    token, file = user.get("token"), user.get("tokenFile")
    if isinstance(token, str):
        return lambda: token
    if isinstance(file, str):
        return lambda: (path.parent / file).read_text().strip()
    return _no_token


def _tls_of(path: Path, cluster: Mapping[str, object], user: Mapping[str, object]) -> ssl.SSLContext:
    """Return the TLS context: the cluster's authority, and the user's certificate if there is one."""
    try:
        authority = _bytes_of(path, cluster, "certificate-authority")
        tls = _trusting(ssl.create_default_context(cadata=None if authority is None else authority.decode()))
        if cluster.get("insecure-skip-tls-verify") is True:
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        certificate, key = (_bytes_of(path, user, f"client-{part}") for part in ("certificate", "key"))
        if certificate is not None and key is not None:
            _load_certificate(tls, certificate, key)
    except (OSError, ValueError) as cause:
        raise _invalid(path, str(cause)) from cause
    return tls


def _trusting(tls: ssl.SSLContext) -> ssl.SSLContext:
    """Return a context that accepts the certificates of clusters, as kubectl does.

    Since Python 3.13 a context is strict by default, and refuses authorities without some extensions that
    many clusters do not have. Names and signatures are checked all the same.
    """
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return tls


def _bytes_of(path: Path, holder: Mapping[str, object], name: str) -> bytes | None:
    """Return a value that a kubeconfig has either in it or in a file beside it."""
    data, file = holder.get(f"{name}-data"), holder.get(name)
    if isinstance(data, str):
        return b64decode(data)
    return (path.parent / file).read_bytes() if isinstance(file, str) else None


def _load_certificate(tls: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate with its key; Python reads them from files only, so there is one for a moment."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate + b"\n" + key)
        file.flush()
        tls.load_cert_chain(file.name)
