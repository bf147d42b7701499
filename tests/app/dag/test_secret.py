"""Secrets of a DAG's tasks: a task that is a function has none, and is left as it is."""

import json

from kron.app.dag.secret import sealed_dag, shown_dag, unsealed_dag
from kron.launchers.secret import Vault

KEY = "a-key-of-thirty-two-characters-01"
FUNCTION = {"id": "load", "type": "python", "function": "load"}
REQUEST = {"id": "send", "type": "http", "url": "http://127.0.0.1:9/", "headers": {"Authorization": "s3cr3t"}}


def test_tasks_that_are_functions_stay_as_they_are_beside_those_with_secrets() -> None:
    text = json.dumps({"nodes": [FUNCTION, REQUEST, {**FUNCTION, "id": "last"}]})
    vault = Vault([KEY])
    sealed = sealed_dag("etl", text, vault)
    assert "s3cr3t" not in sealed
    shown = [json.loads(json.dumps(shown_dag(each))) for each in (text, sealed)]
    for document in (json.loads(sealed), *shown):
        first, request, last = document["nodes"]
        assert (first, last) == (FUNCTION, {**FUNCTION, "id": "last"})
        assert "s3cr3t" not in str(request)
    assert json.loads(unsealed_dag("etl", sealed, vault)) == json.loads(text)
