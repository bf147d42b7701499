"""Credential plugins of a kubeconfig: a program that prints a token, or a client certificate, as JSON."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

# How long a plugin may take, in seconds.
PLUGIN_S = 60.0
INFO = "KUBERNETES_EXEC_INFO"


class PluginError(ValueError):
    """A credential plugin cannot be run, or prints something that is no credential."""


class CredentialPlugin:
    """Runs the program of a user of a kubeconfig, again when the server does not accept its token any more.

    What it prints on its standard error is not shown: it may name secrets.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._command = [str(settings.get("command") or ""), *map(str, settings.get("args") or ())]
        self._api_version = str(settings.get("apiVersion") or "client.authentication.k8s.io/v1")
        self._variables = _variables(settings.get("env") or ())
        self._credential: Mapping[str, Any] = {}

    def credential(self) -> Mapping[str, Any]:
        """Return what the program printed: `token`, or `clientCertificateData` and `clientKeyData`."""
        if not self._credential:
            self._credential = self._run()
        return self._credential

    def refused(self) -> bool:
        """Forget a credential that the server refuses; the next request has another one."""
        self._credential = {}
        return True

    def token(self) -> str | None:
        """Return the token for a request, None if a certificate identifies the caller."""
        try:
            token = self.credential().get("token")
        except PluginError as error:
            # As with a file that cannot be read: the request fails, and is tried again later.
            raise OSError(str(error)) from error
        return None if token is None else str(token)

    def _run(self) -> Mapping[str, Any]:
        info = {"apiVersion": self._api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
        name = self._command[0]
        try:
            done = subprocess.run(  # noqa: S603 - the kubeconfig names it, as for kubectl
                self._command,
                env={**os.environ, **self._variables, INFO: json.dumps(info)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PLUGIN_S,
                check=False,
            )
            status = json.loads(done.stdout)["status"] if done.returncode == 0 else None
        except (OSError, subprocess.SubprocessError) as cause:
            raise PluginError(f'the credential plugin "{name}" cannot be run') from cause
        except (ValueError, KeyError, TypeError) as cause:
            raise PluginError(f'the credential plugin "{name}" prints no credential') from cause
        if done.returncode:
            raise PluginError(f'the credential plugin "{name}" ended with status {done.returncode}')
        if not isinstance(status, Mapping) or not (
            status.get("token") or status.get("clientCertificateData")
        ):
            raise PluginError(f'the credential plugin "{name}" prints no credential')
        return status


def _variables(pairs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {str(each["name"]): str(each["value"]) for each in pairs}
