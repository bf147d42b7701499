"""Files with DAGs, Python files with `@dag` functions or JSON definitions, and the options of a run."""

import importlib.util
import json
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from traceback import extract_tb
from typing import Annotated

import typer

from kron.cli.support.terminal import Color
from kron.clocks.system import SystemClock
from kron.core.errors import InvalidOptionError, KronError, UnreadableFileError
from kron.core.time.instant import EPOCH, instant_text
from kron.fronts.dag.python_dag import PythonDag

DagFile = Annotated[
    str, typer.Argument(metavar="FILE", help="A .py file with a @dag, or a .json definition.")
]
Date = Annotated[
    str | None,
    typer.Option(
        "--date", metavar="TIME", help="Logical date, ISO 8601; UTC without an offset.  [default: now]"
    ),
]
Input = Annotated[
    str | None, typer.Option("--input", metavar="JSON", help="Input of the run, a JSON object.")
]
COLORS = {
    "success": Color.GREEN, "failed": Color.RED, "upstream_failed": Color.RED, "running": Color.CYAN,
    "cancelled": Color.DIM, "skipped": Color.DIM, "queued": Color.YELLOW,
}  # fmt: skip


def dags_in(path: str) -> list[PythonDag]:
    """Return the DAGs in a file, or raise InvalidOptionError; a JSON file has one, named by its stem."""
    file = Path(path)
    if not file.is_file():
        raise InvalidOptionError(option="FILE", value=path, reason="there is no such file")
    if file.suffix == ".json":
        return [_json_dag(file)]
    if file.suffix != ".py":
        raise InvalidOptionError(option="FILE", value=path, reason="use a .py or a .json file")
    dags = _python_dags(file)
    if not dags:
        raise InvalidOptionError(option="FILE", value=path, reason="it has no @dag")
    return dags


def _json_dag(file: Path) -> PythonDag:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as cause:
        raise InvalidOptionError(option="FILE", value=str(file), reason=f"it is not JSON: {cause}") from cause
    if not isinstance(document, Mapping):
        raise InvalidOptionError(option="FILE", value=str(file), reason="must be an object with nodes")
    return PythonDag(file.stem, document, {})


def _python_dags(file: Path) -> list[PythonDag]:
    name = f"kron_dag_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None, "it ends in .py"
    assert spec.loader is not None, "it ends in .py"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # Modules beside the file are found, as when it is run as a script.
    sys.path.insert(0, str(file.parent.absolute()))
    try:
        spec.loader.exec_module(module)
    except KronError:
        raise
    except Exception as cause:
        # The fault of the file, not of Kron: its line is what its author needs.
        raise UnreadableFileError(file=str(file), reason=_fault_in(file, cause)) from cause
    found = {id(value): value for value in vars(module).values() if isinstance(value, PythonDag)}
    return list(found.values())


def _fault_in(file: Path, error: Exception) -> str:
    """Return what a Python file raised when it was loaded, with the last of its lines that led there."""
    here = str(file.absolute())
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == here]
    if isinstance(error, SyntaxError) and error.filename == here:
        lines.append(error.lineno)
    place = f"line {lines[-1]}: " if lines else ""
    reason = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{place}{type(error).__name__}: {reason}"


def input_of(text: str | None) -> Mapping[str, object]:
    """Parse the input of a run."""
    try:
        value = json.loads(text or "{}")
    except ValueError as cause:
        raise InvalidOptionError(option="--input", value=text, reason=f"it is not JSON: {cause}") from cause
    if not isinstance(value, dict):
        raise InvalidOptionError(option="--input", value=text, reason="must be a JSON object")
    return value


def now_text() -> str:
    """Return the present second as a logical date."""
    return instant_text((SystemClock().now() - EPOCH) // timedelta(seconds=1) * 1000)
