"""Executions that are started by the launcher of another package."""

import json
from collections.abc import Mapping

from kron.core.time.instant import rfc3339
from kron.launchers.backoff import Backoff
from kron.launchers.delivery import USUAL_BACKOFF, RemoteLauncher
from kron.launchers.http.request import MAX_RUN_ID, DeliveryResult
from kron.launchers.plugin.spec import ALWAYS, OwnLauncher, OwnStart, load_plugin
from kron.launchers.report import tidy
from kron.ports import Clock, Launch


class PluginKindLauncher(RemoteLauncher):
    """Starts executions by one object of another package's class."""

    def __init__(self, clock: Clock, kind: str, *, backoff: Backoff = USUAL_BACKOFF) -> None:
        self._kind = kind
        self._own: OwnLauncher = load_plugin(kind)()
        reports = bool(getattr(self._own, "reports", False))
        super().__init__(clock, self._sent, reports=reports, backoff=backoff)

    async def _sent(self, launch: Launch) -> DeliveryResult:
        said: dict[str, object] = json.loads(launch.job.launcher)
        try:
            run_id = await self._own.start(OwnStart(said, _arguments_of(launch, said)))
        except Exception as cause:  # noqa: BLE001 - whatever another package raises is a failed launch
            error = tidy(f"the launcher {self._kind} failed: {type(cause).__name__}: {cause}")
            return DeliveryResult(error, again=not isinstance(cause, ValueError))
        return DeliveryResult(run_id=None if run_id is None else tidy(str(run_id), MAX_RUN_ID))


def _arguments_of(launch: Launch, said: Mapping[str, object]) -> dict[str, object]:
    run = launch.run
    return {
        **{name: said.get(name) for name in ALWAYS[1:]},
        "scheduled_for": rfc3339(run.nominal_time),
        "idempotency_key": run.key,
        "identity": run.identity,
        "attempt": run.attempt,
        "fencing_token": run.token,
    }
