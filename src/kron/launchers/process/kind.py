"""The launcher kind `process`: processes of this worker, or of supervisors where its options say so."""

from functools import partial

from kron.core.plan.compiled import cached_by_length
from kron.launchers.process.launcher import ProcessLauncher, length_of
from kron.launchers.process.process import inherited_env
from kron.launchers.process.spec import ProcessOptions, ProcessSettings, check_start
from kron.launchers.process.supervised import SupervisedLauncher
from kron.launchers.spec import MAX_CACHED, LauncherContext, LauncherKind


def _build(_: str, context: LauncherContext) -> ProcessLauncher:
    options = context.config.get(ProcessOptions)
    kind = SupervisedLauncher if options.supervised else ProcessLauncher
    launcher = kind(context.clock, options.folder, on_output=options.on_output, secret=context.secret)
    if options.max_per_tenant is not None:
        launcher.limit_tenants(options.max_per_tenant)
    launcher.env = inherited_env(options)
    # The configuration of a worker does not change, so each launcher object is checked once.
    launcher.check = cached_by_length(MAX_CACHED, length_of)(partial(check_start, context.config))
    return launcher


PROCESS = LauncherKind(
    name=ProcessSettings.kind,
    read=ProcessSettings.read,
    schema=ProcessSettings.schema(),
    traits={ProcessSettings.kind: ProcessLauncher.traits},
    build=_build,
)
