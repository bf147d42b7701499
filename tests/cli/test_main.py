"""The command by its other name."""

import subprocess
import sys


def kron(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "kron", *words], capture_output=True, text=True, check=False)


def test_python_m_kron_is_kron_and_passes_its_answer_on() -> None:
    good = kron("next", "0 9 * * mon", "--count", "1", "--json")
    assert (good.returncode, good.stderr) == (0, "")
    assert "T09:00:00" in good.stdout
    bad = kron("next", "0 25 * * *")
    assert bad.returncode == 2
    assert bad.stderr.startswith("kron: ")
