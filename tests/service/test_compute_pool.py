"""The threads that compute answers: they give way to the event loop and to the store's thread."""

import signal
import sys
from pathlib import Path

from kron.fronts.service.compute_pool import SWITCH_S
from tests.service.server import serving

# `kron`, which says in the end how long one of its threads keeps the interpreter from another.
SAYING = """
import sys
from kron.cli.main import run
code = run()
print(f"threads switch after {1000 * sys.getswitchinterval():g} ms", file=sys.stderr)
sys.exit(code)
"""


def test_a_service_lets_threads_that_compute_give_way_quickly(tmp_path: Path) -> None:
    with serving(tmp_path, program=[sys.executable, "-c", SAYING]) as (client, server):
        client.get("/healthz").raise_for_status()
        server.signal(signal.SIGTERM)
        switched = server.logged(r"threads switch after (\S+) ms")
    assert float(switched[1]) <= 1000 * SWITCH_S
