"""The traits of each launcher kind, as far as planning needs them."""

from collections.abc import Mapping

from kron.core.plan.report import Traits
from kron.launchers.delivery import traits_of
from kron.launchers.plugin.spec import plugin_kinds, reports_of
from kron.launchers.spec import launcher_kind_of, read_launcher

TRAITS: Mapping[str, Traits] = {
    "callback": Traits(),
    "process": Traits(),
    "http": traits_of(reports=False),
    "http:reports": traits_of(reports=True),
    "celery": traits_of(reports=False),
    "celery:reports": traits_of(reports=True),
    "workflow": Traits(),
}


def traits_for(executor: Mapping[str, object] | None) -> Mapping[str, Traits]:
    """Return the traits of each kind, with installed plugins, and workflows run by an executor if given."""
    plugins = {kind: traits_of(reports=reports_of(kind)) for kind in plugin_kinds()}
    known = {**plugins, **TRAITS}
    if executor is None:
        return known
    return {**known, "workflow": known[launcher_kind_of(read_launcher(executor))]}
