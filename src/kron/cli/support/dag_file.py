"""Files with DAGs: Python files with `@dag` functions, and JSON definitions."""

import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from kron.core.errors import InvalidOptionError
from kron.fronts.dag.python_dag import PythonDag


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
    spec.loader.exec_module(module)
    found = {id(value): value for value in vars(module).values() if isinstance(value, PythonDag)}
    return list(found.values())
