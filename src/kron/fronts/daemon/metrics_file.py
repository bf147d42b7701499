"""The metrics of a krond as a Prometheus text file, which the textfile collector of node_exporter reads."""

import asyncio
import logging
import os
from pathlib import Path

from kron.core.errors import InputError
from kron.telemetry.metrics import Metrics

_log = logging.getLogger("kron.krond")
# How often the file is written, in seconds: a usual scrape interval.
WRITE_S = 15.0


class MetricsFile:
    """Writes the metrics to a file, each time all at once: a reader never sees a part of them."""

    def __init__(self, path: Path, metrics: Metrics) -> None:
        if path.is_dir():
            raise InputError(f"--metrics-file {path} is a folder")
        self._metrics = metrics
        self._path = path
        self._is_failing = False

    async def run(self) -> None:
        """Write the file now and then every interval."""
        while True:
            await self.write()
            await asyncio.sleep(WRITE_S)

    async def write(self) -> None:
        """Write the file once; a failure is logged once and ends nothing."""
        text = await self._metrics.scrape()
        try:
            await asyncio.to_thread(_replace, self._path, text)
        except OSError as error:
            if not self._is_failing:
                _log.warning("the metrics cannot be written to %s: %s", self._path, error.strerror or error)
            self._is_failing = True
        else:
            self._is_failing = False


def _replace(path: Path, text: bytes) -> None:
    # The collector reads files that end with .prom, so it never reads the new one before it is complete.
    new = path.with_name(f"{path.name}.new")
    # Other users read it: it has counts, and no name of a job.
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
    with open(descriptor, "wb") as file:
        file.write(text)
    new.replace(path)
