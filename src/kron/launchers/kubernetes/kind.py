"""The launcher kind `kubernetes`: of its launcher, only a worker with a cluster has need."""

from functools import partial

from kron.launchers.kubernetes.spec import TRAITS, KubernetesOptions, KubernetesSettings, check_start
from kron.launchers.spec import LauncherContext, LauncherKind
from kron.ports import Launcher


def _build(_: str, context: LauncherContext) -> Launcher | None:
    access = context.config.get(KubernetesOptions).access
    if access is None:
        return None
    # Imported only where it is used: a daemon without a cluster does without its memory.
    from kron.launchers.kubernetes.api import ApiClient
    from kron.launchers.kubernetes.launcher import KubernetesLauncher

    launcher = KubernetesLauncher(context.clock, ApiClient(access), by_namespace=True)
    launcher.check = partial(check_start, context.config)
    return launcher


KUBERNETES = LauncherKind(
    name=KubernetesSettings.kind,
    read=KubernetesSettings.read,
    schema=KubernetesSettings.schema(),
    traits={KubernetesSettings.kind: TRAITS},
    build=_build,
)
