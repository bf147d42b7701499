"""The metrics of two processes as one: counts are added, and of states the worker's count."""

from collections.abc import Iterator

from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

# What both processes have of their own, and together.
ADDED = ("process_resident_memory_bytes", "process_virtual_memory_bytes", "process_open_fds")


class _Merged(Collector):
    def __init__(self, families: dict[tuple[str, str], Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        yield from self._families.values()


def merged(own: str, worker: str) -> bytes:
    """Return the metrics of the API and of its worker, both in the Prometheus text format, in one text."""
    families = {(each.name, each.type): each for each in text_string_to_metric_families(own)}
    for family in text_string_to_metric_families(worker):
        key = family.name, family.type
        known = families.get(key)
        families[key] = family if known is None else _together(known, family)
    return generate_latest(_Merged(families))


def _together(own: Metric, worker: Metric) -> Metric:
    if own.type in ("gauge", "info") and own.name not in ADDED:
        return worker if worker.samples else own
    values: dict[tuple[str, tuple[tuple[str, str], ...]], Sample] = {}
    for sample in (*own.samples, *worker.samples):
        key = sample.name, tuple(sorted(sample.labels.items()))
        known = values.get(key)
        values[key] = sample if known is None else known._replace(value=known.value + sample.value)
    own.samples = list(values.values())
    return own
