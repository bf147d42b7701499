"""The probes and the metrics of an operator, over HTTP."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

from kron.fronts.operator.history import HistoryWriter
from kron.fronts.operator.operator import Operator
from kron.telemetry.counters import Histogram

# How long a client may take to send its request, and the longest request, in seconds and bytes.
REQUEST_S, MAX_REQUEST = 5.0, 8_192
PREFIX = "kron_operator"


class ProbeServer:
    """Answers `/healthz`, `/readyz` and `/metrics`; everything else is 404."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_REQUEST)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError, ValueError, IndexError, asyncio.LimitOverrunError):
            async with asyncio.timeout(REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].decode("latin-1").partition("?")[0]
                status, text = self._answer(path)
                body = text.encode()
                kind = "text/plain; version=0.0.4; charset=utf-8"
                lines = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                writer.write(f"{lines}Connection: close\r\n\r\n".encode() + body)
                await writer.drain()
        writer.close()

    def _answer(self, path: str) -> tuple[str, str]:
        worker = self._operator.worker
        match path:
            case "/metrics":
                return "200 OK", "".join(f"{line}\n" for line in metrics_of(self._operator))
            case "/healthz" | "/readyz":
                bad = ("failed",) if path == "/healthz" else ("failed", "degraded")
                is_good = worker.health.state not in bad
                text = f"{worker.state}\n" if worker.error is None else f"{worker.state}: {worker.error}\n"
                return ("200 OK" if is_good else "503 Service Unavailable"), text
            case _:
                return "404 Not Found", "there are /healthz, /readyz and /metrics\n"


def metrics_of(operator: Operator) -> Iterator[str]:
    """Yield the lines of the Prometheus text format."""
    yield from _head("reconcile_seconds", "histogram", "Time to reconcile one KronJob.")
    yield from _histogram("reconcile_seconds", operator.controller.durations)
    yield from _head("creation_skew_seconds", "histogram", "Delay of a Job's creation after its chosen time.")
    yield from _histogram("creation_skew_seconds", operator.skew)
    yield from _head("outcomes_total", "counter", "Starts, ends and dropped periods, by reason.")
    for (event, reason), count in sorted(operator.journal.outcomes.items()):
        yield f'{PREFIX}_outcomes_total{{event="{event}",reason="{reason}"}} {count}'
    yield from _head("api_requests_total", "counter", "Requests to the API server, by verb and resource.")
    for (verb, resource), count in sorted(operator.api.requests.items()):
        yield f'{PREFIX}_api_requests_total{{verb="{verb}",resource="{resource}"}} {count}'
    gauges = {
        "queue_depth": ("KronJobs that wait to be reconciled.", operator.controller.depth),
        "leader": ("Whether this operator holds the Lease.", int(operator.store.is_owner)),
        "kronjobs": ("KronJobs with a record.", len(operator.store.books)),
        "refused_kronjobs": (
            "KronJobs whose record the API server does not accept.",
            len(operator.store.refusals.keys() | operator.store.held.keys()),
        ),
        "active_runs": (
            "Runs whose Jobs have not ended.",
            sum(run.in_flight for book in operator.store.books.values() for run in book.runs),
        ),
    }
    for name, (doc, value) in gauges.items():
        yield from _head(name, "gauge", doc)
        yield f"{PREFIX}_{name} {value}"
    if operator.history is not None:
        yield from _history(operator.history)
        yield from _head(
            "history_pruned_total", "counter", "Old records removed from the history by retention."
        )
        for kind, count in operator.journal.pruned.items():
            yield f'{PREFIX}_history_pruned_total{{kind="{kind}"}} {count}'


def _history(history: HistoryWriter) -> Iterator[str]:
    yield from _head("history_waiting", "gauge", "KronJobs with records that the history does not have yet.")
    yield f"{PREFIX}_history_waiting {history.waiting}"
    counters = {
        "history_written_total": ("Copies of a KronJob's records in the history.", history.written),
        "history_failures_total": ("Failed writes to the history; each is retried.", history.failures),
        "history_dropped_total": ("Records dropped before they were copied to the history.", history.dropped),
    }
    for name, (doc, value) in counters.items():
        yield from _head(name, "counter", doc)
        yield f"{PREFIX}_{name} {value}"


def _head(name: str, kind: str, doc: str) -> Iterator[str]:
    yield f"# HELP {PREFIX}_{name} {doc}"
    yield f"# TYPE {PREFIX}_{name} {kind}"


def _histogram(name: str, histogram: Histogram) -> Iterator[str]:
    for bound, count in histogram.buckets():
        yield f'{PREFIX}_{name}_bucket{{le="{bound}"}} {count:g}'
    yield f"{PREFIX}_{name}_sum {histogram.sum:g}"
    yield f"{PREFIX}_{name}_count {histogram.count}"
