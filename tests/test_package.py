"""The public surface: names, laziness, and what an installation without extras says."""

import ast
import subprocess
import sys
from pathlib import Path

import kron
from kron.core import errors as core_errors
from kron.core.task import errors as task_errors


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.strip()


def test_every_public_name_can_be_had() -> None:
    for name in kron.__all__:
        assert getattr(kron, name) is not None
    assert set(dir(kron)) == set(kron.__all__)


def test_type_checkers_see_the_names_that_are_loaded() -> None:
    stub = Path(kron.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    named = {
        alias.asname
        for node in ast.walk(ast.parse(stub))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert named == set(kron.__all__)


def test_every_error_is_in_one_module_and_the_old_names_are_the_same_classes() -> None:
    assert set(kron.errors.__all__) >= {name for name in kron.__all__ if name.endswith("Error")}
    for name in kron.errors.__all__:
        assert getattr(kron, name, None) in (None, getattr(kron.errors, name))
    core = (core_errors, task_errors)
    defined = [each for module in core for each in vars(module).values() if isinstance(each, type)]
    raised = {each.__name__ for each in defined if issubclass(each, kron.KronError)}
    assert raised <= set(kron.errors.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(kron, "Cronjob")


def test_importing_kron_loads_nothing_else_of_it() -> None:
    code = "import sys, kron; print(sorted(m for m in sys.modules if m.startswith('kron') or m == 'asyncio'))"
    assert python(code) == "['kron']"


def test_a_schedule_needs_neither_the_command_line_nor_asyncio_nor_the_fields_of_jobs() -> None:
    code = (
        "import sys, kron; kron.Schedule('* * * * *'); "
        "heavy = 'typer', 'rich', 'yaml', 'asyncio', 'kron.cli', 'kron.core.fields'; "
        "print([m for m in heavy if m in sys.modules])"
    )
    assert python(code) == "[]"


def test_without_its_packages_the_command_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['typer'] = None; sys.stderr = sys.stdout; "
        "from kron.cli.main import run; print(run([]))"
    )
    assert python(code) == (
        "kron: the command line needs more packages: pip install 'kron-engine[cli]' "
        "(from a checkout: pip install '.[cli]')\n2"
    )
