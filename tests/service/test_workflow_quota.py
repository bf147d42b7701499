"""The quota of workflow versions: a user with many cannot deploy another; other users are not affected."""

import time
from pathlib import Path

import httpx

from tests.service.auth import forge
from tests.service.server import serving

DAG: dict[str, object] = {"nodes": [], "triggers": [], "draft": True}


def deploy(
    client: httpx.Client, user: str, name: str, version: int, *, query: str = "", **fields: object
) -> httpx.Response:
    now = int(time.time())
    token = forge.token(sub=user, iat=now, exp=now + 3600, scope="admin" if user == "root" else "write")
    headers = {"authorization": f"Bearer {token}"}
    path = f"/workflows/{name}/versions/{version}{query}"
    return client.put(path, json={"user_id": "ann", **DAG, **fields}, headers=headers)


def test_a_user_has_a_quota_of_workflow_versions(tmp_path: Path) -> None:
    settings = {
        "KRON_JWT_SECRET": forge.SECRET,
        "KRON_JWT_ISSUER": forge.ISSUER,
        "KRON_JWT_AUDIENCE": forge.AUDIENCE,
        "KRON_MAX_WORKFLOW_VERSIONS": "2",
    }
    with serving(tmp_path, **settings) as (client, _):
        assert deploy(client, "ann", "ann.a", 1).status_code == 201
        assert deploy(client, "ann", "ann.b", 1).status_code == 201
        for query in ("", "?dry_run=true"):
            refused = deploy(client, "ann", "ann.a", 2, query=query)
            assert refused.status_code == 429, refused.text
            assert "max_workflow_versions" in refused.json()["detail"]
        # A draft that is changed or published is no other version.
        assert deploy(client, "ann", "ann.a", 1, nodes=[{"id": "a", "type": "log"}]).status_code == 200
        assert deploy(client, "ann", "ann.a", 1, draft=False).status_code == 200
        assert deploy(client, "bob", "bob.a", 1, user_id="bob").status_code == 201
        assert deploy(client, "root", "ann.a", 2).status_code == 201
