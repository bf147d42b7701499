"""Executions that are started by a request: whoever answers it runs them."""

from functools import lru_cache

from kron.core.errors import InvalidOptionError
from kron.launchers.backoff import Backoff
from kron.launchers.delivery import MAX_REQUESTS, USUAL_BACKOFF, RemoteLauncher
from kron.launchers.http.client import Sender
from kron.launchers.http.egress import EgressPolicy
from kron.launchers.http.request import MAX_TARGETS, DeliveryResult
from kron.launchers.spec import HttpSettings, settings_of
from kron.ports import Clock, Launch

_settings_of = lru_cache(maxsize=MAX_TARGETS)(settings_of)


class HttpLauncher(RemoteLauncher):
    """POSTs the start of each execution; any 2xx answer means that it was accepted.

    With a `gate` only hosts that it lets through are asked; with a `secret` every request is signed.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        reports: bool = False,
        backoff: Backoff = USUAL_BACKOFF,
        max_requests: int = MAX_REQUESTS,
        gate: EgressPolicy | None = None,
        secret: bytes | None = None,
    ) -> None:
        super().__init__(clock, self._sent, reports=reports, backoff=backoff, max_requests=max_requests)
        self._sender = Sender(clock, gate=gate, secret=secret)

    async def _sent(self, launch: Launch) -> DeliveryResult:
        settings = _settings_of(launch.job.launcher)
        if not isinstance(settings, HttpSettings):
            raise InvalidOptionError(option="launcher", value=launch.job.launcher_kind, reason="is not http")
        return await self._sender.send(launch, settings)

    async def close(self, *, wait: bool = True) -> None:
        """Wait for the launches, or break them off unreported: the next owner launches them again."""
        await super().close(wait=wait)
        await self._sender.close()
