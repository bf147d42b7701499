"""The dependency audit says plainly what it did not check, and fails if it has to check everything."""

import os
import subprocess
import sys

import pytest

from tests.docs.page import ROOT

# Nothing listens there, so the advisory service cannot be reached.
UNREACHABLE = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"), "http://127.0.0.1:9")


@pytest.mark.slow
def test_an_audit_without_the_advisory_service_says_that_nothing_was_checked() -> None:
    for words in ([], ["--require"]):
        done = subprocess.run(
            [sys.executable, "tools/audit.py", *words],
            cwd=ROOT,
            env={**os.environ, **UNREACHABLE, "NO_PROXY": "", "no_proxy": ""},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "[audit] NOTHING WAS CHECKED for known vulnerabilities: pip-audit" in done.stderr
        assert ", 0 of " in done.stdout
        # An unpinned package fails in any case.
        assert done.returncode in ((1, 2) if words else (0, 1)), done.stderr
