"""What `kron.testing` offers, and what it does not ask for."""

import ast
import subprocess
import sys
from pathlib import Path

import kron.testing


def modules_after(code: str) -> set[str]:
    code += "; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_every_name_can_be_had_and_is_known_to_type_checkers() -> None:
    stub = Path(kron.testing.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    imports = [node for node in ast.walk(ast.parse(stub)) if isinstance(node, ast.ImportFrom)]
    assert {alias.asname for node in imports for alias in node.names} == set(kron.testing.__all__)
    for name in kron.testing.__all__:
        assert getattr(kron.testing, name) is not None
    assert dir(kron.testing) == sorted(kron.testing.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(kron.testing, "BrokenClock")


def test_it_needs_neither_pytest_nor_hypothesis() -> None:
    loaded = modules_after("import kron.testing as t; [getattr(t, name) for name in t.__all__]")
    assert "kron.testing.faulty_store" in loaded
    assert not loaded & {"pytest", "_pytest", "hypothesis"}


def test_a_name_loads_what_it_needs_and_no_more() -> None:
    loaded = modules_after("from kron.testing import SimulatedClock")
    assert not loaded & {"kron.testing.faulty_store", "kron.testing.store_contract", "kron.core.plan.plan"}
