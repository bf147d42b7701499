"""Schemathesis over everything the API describes, against a real server: `python -m tests.service.fuzz`."""

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from kron.fronts.service.api.models import EXAMPLE
from tests.service.auth import forge
from tests.service.server import Process, serving

# What a schema cannot say (an expression, a zone, a state) is refused although the schema allows it; what is
# left of a deleted schedule has a check of its own.
LEFT_OUT = "positive_data_acceptance,use_after_free"
# An unauthenticated caller is not told which methods a path has.
UNTOLD = "unsupported_method"
REQUEST_S = "20"
# The tests send the same requests every time; `make fuzz` sends others each time, for minutes.
SAME = "--generation-deterministic"
LONG = ("--max-examples", "400")
# A body beyond the limit is refused by its size before it is read.
SETTINGS = """[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429, "5xx"]
"""


# Each kind of caller: one of a service without authentication, and tokens with their claims.
OPEN, EXPIRED = "open", "expired"
CALLERS: dict[str, dict[str, object]] = {
    "admin": {"sub": "ops", "scope": "admin"},
    "tenant": {"sub": "ann", "scope": "read write run"},
    "reader": {"sub": "bob", "scope": "read"},
    "nobody": {"sub": "eve", "scope": ""},
    EXPIRED: {"sub": "ann", "scope": "admin", "exp": 1},
}


def fuzzed(folder: Path, *options: str, caller: str = OPEN) -> tuple[str, Process]:
    """Send generated requests to every route; return the report of failures, if any, and the server."""
    guard = {} if caller == OPEN else {"KRON_JWT_SECRET": forge.SECRET, "KRON_REQUESTS_PER_S": "0"}
    left_out = f"{LEFT_OUT},{UNTOLD}" if caller == EXPIRED else LEFT_OUT
    with serving(folder, **guard) as (client, server):
        if caller != OPEN:
            client.headers.update(_header(CALLERS["admin"]))
            options = (*options, "--header", f"Authorization: {_header(CALLERS[caller])['Authorization']}")
        _fill(client)
        environment = {**os.environ, "SCHEMATHESIS_HOOKS": "tests.service.fuzz_hooks", "NO_COLOR": "1"}
        settings = folder / "schemathesis.toml"
        settings.write_text(SETTINGS)
        script = "import sys; from schemathesis.cli import schemathesis; sys.exit(schemathesis())"
        done = subprocess.run(
            [
                *(sys.executable, "-c", script, "--config-file", str(settings)),
                *("run", f"{client.base_url}/openapi.json"),
                *("--checks", "all", "--exclude-checks", left_out, "--workers", "1"),
                *("--request-timeout", REQUEST_S, "--warnings", "off"),
                # Names are hard to guess, and that is not what is tested.
                *("--suppress-health-check", "filter_too_much", *options),
            ],
            env={**environment, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path])},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        # Whatever it was sent, it is still there and well.
        assert client.get("/readyz").json() == {"status": "ok", "worker": "running", "error": None}
        return ("" if done.returncode == 0 else done.stdout + done.stderr), server


def _header(claims: dict[str, object]) -> dict[str, str]:
    now = int(time.time())
    said = {"iat": now, "exp": now + 3600, **claims}
    return {"Authorization": f"Bearer {forge.token(**said)}"}


def _fill(client: httpx.Client) -> None:
    """Store a schedule and a run, so that there is something to ask about."""
    name = EXAMPLE["schedule_id"]
    assert client.post("/schedules/upsert", json=EXAMPLE).status_code == 200
    assert client.post(f"/schedules/{name}/run").status_code == 202


if __name__ == "__main__":
    given = sys.argv[1:] or [*LONG]
    if "--seed" not in given:
        given += ["--seed", str(time.time_ns() % 1_000_000)]
    for each in (OPEN, *CALLERS):
        sys.stderr.write(f"[fuzz] {each}: {' '.join(given)}\n")
        with TemporaryDirectory() as place:
            failures, _ = fuzzed(Path(place), *given, caller=each)
        if failures:
            sys.exit(failures)
