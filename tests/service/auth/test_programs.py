"""Programs of schedules run as the operator allows: paths, variables and installed launchers."""

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from kron.app.settings import InvalidSettingsError
from kron.fronts.service.settings import read_settings
from tests.service.server import NEW_KRON, Process, serving
from tests.service.test_plugin import variables as plugin_variables
from tests.waiting import wait_for

__all__ = ["plugin_variables"]


def program(folder: Path, name: str, text: str) -> Path:
    """Write a shell program into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def upsert(client: httpx.Client, launcher: Mapping[str, object], name: str = "job") -> httpx.Response:
    document = {"schedule_id": name, "cron_expr": "0 0 1 1 *", "timezone": "UTC", "launcher": launcher}
    return client.post("/schedules/upsert", json=document)


def ended(client: httpx.Client, name: str = "job") -> dict[str, object]:
    """Run a schedule, and return its run once it has ended."""
    key = client.post(f"/schedules/{name}/run").raise_for_status().json()["idempotency_key"]

    def end() -> dict[str, object] | None:
        runs = client.get(f"/schedules/{name}/runs").json()["runs"]
        return next((run for run in runs if run["idempotency_key"] == key and run["result"]), None)

    return wait_for(end)


def test_the_folder_of_a_schedule_does_not_decide_which_program_runs(tmp_path: Path) -> None:
    allowed = program(tmp_path / "bin", "backup", f"echo allowed > {tmp_path}/ran")
    tenant = tmp_path / "tenant"
    program(tenant, "backup", f"echo tenant > {tmp_path}/ran")
    program(tenant / "bin", "backup", f"echo tenant > {tmp_path}/ran")
    with serving(tmp_path, KRON_ALLOWED_COMMANDS=str(allowed)) as (client, _):
        for word in ("backup", str(allowed)):
            launcher = {"kind": "process", "command": [word], "cwd": str(tenant)}
            assert upsert(client, launcher).status_code == 200
            assert ended(client)["result"] == "success"
            assert (tmp_path / "ran").read_text() == "allowed\n"
        for word in ("bin/backup", "./backup", str(tenant / "backup"), "other"):
            launcher = {"kind": "process", "command": [word], "cwd": str(tenant)}
            assert "allowed_commands" in upsert(client, launcher).json()["detail"], word


@pytest.mark.parametrize("text", ["backup", "bin/backup", "./backup", "sh"])
def test_an_allowed_command_must_be_an_absolute_path(text: str) -> None:
    with pytest.raises(InvalidSettingsError, match="must be an absolute path, such as /"):
        read_settings({"KRON_ALLOWED_COMMANDS": f"/bin/true,{text}"}, {})


@pytest.mark.parametrize(
    "name",
    [
        "HOME", "GIT_SSH", "MAKEFILES", "GNUMAKEFLAGS", "LD_PRELOAD", "LD_AUDIT", "PATH", "PYTHONPATH",
        "BASH_ENV", "IFS", "CDPATH", "NODE_OPTIONS", "PIP_INDEX_URL", "KRON_TOKEN", "A-B", "1A",
    ],
)  # fmt: skip
def test_no_operator_can_allow_a_variable_that_decides_which_code_runs(name: str) -> None:
    with pytest.raises(InvalidSettingsError):
        read_settings({"KRON_ALLOWED_VARIABLES": f"MODE,{name}"}, {})


def test_schedules_set_only_the_variables_that_the_operator_lists(tmp_path: Path) -> None:
    allowed = program(tmp_path / "bin", "show", f"env > {tmp_path}/env")
    listed = {"KRON_ALLOWED_COMMANDS": str(allowed), "KRON_ALLOWED_VARIABLES": "MODE"}
    with serving(tmp_path, **listed) as (client, _):
        for name in (
            "HOME", "GIT_DIR", "MAKEFILES", "PATH", "OTHER", "http_proxy", "KRON_TOKEN", "KRON_RUN_TOKEN",
            "LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONSTARTUP", "BASH_ENV",
            "ENV", "IFS", "PS4", "CDPATH", "NODE_OPTIONS", "PERL5OPT", "RUBYOPT", "JAVA_TOOL_OPTIONS",
            "BASH_FUNC_ls%%", "mode", "KRON_VAR", "kron_var_a", " KRON_VAR_A",
        ):  # fmt: skip
            launcher = {"kind": "process", "command": ["show"], "env": {"MODE": "full", name: "/tmp"}}
            refused = upsert(client, launcher)
            assert refused.status_code == 400, name
            assert name in str(refused.json()["problems"])
        for name in ("", "KRON_VAR_A=B", "LD_PRELOAD\0", "KRON_VAR_\0"):
            launcher = {"kind": "process", "command": ["show"], "env": {name: "/tmp"}}
            assert upsert(client, launcher).status_code == 400, name
        launcher = {"kind": "process", "command": ["show"], "env": {"MODE": "full", "KRON_VAR_DAY": "1"}}
        assert upsert(client, launcher).status_code == 200
        assert ended(client)["result"] == "success"
        lines = (tmp_path / "env").read_text().splitlines()
        assert {"MODE=full", "KRON_VAR_DAY=1"} <= set(lines)


def test_a_stored_variable_that_is_no_longer_allowed_fails_the_start_with_the_reason(tmp_path: Path) -> None:
    launcher = {"kind": "process", "command": ["/bin/true"], "env": {"MODE": "full"}}
    listed = {"KRON_ALLOWED_COMMANDS": "/bin/true"}
    with serving(tmp_path, **listed, KRON_ALLOWED_VARIABLES="MODE") as (client, _):
        assert upsert(client, launcher).status_code == 200
    with serving(tmp_path, **listed) as (client, _):
        run = ended(client)
        assert run["result"] == "launch_failed"
        assert "launcher.env.MODE: is not a variable schedules may set" in str(run["error"])


@pytest.mark.slow
def test_the_environment_of_the_service_does_not_reach_processes(tmp_path: Path) -> None:
    allowed = program(tmp_path / "bin", "show", f"env > {tmp_path}/env")
    secrets = {"PGPASSWORD": "hunter2", "AWS_SECRET_ACCESS_KEY": "s", "MY_TOKEN": "t", "AWS_REGION": "r"}
    listed = {"KRON_ALLOWED_COMMANDS": str(allowed), "KRON_INHERITED_VARIABLES": "AWS_REGION"}
    executor = {"kind": "process", "command": [str(allowed)]}
    variables = {"KRON_EXECUTOR": json.dumps(executor), **listed, **secrets}
    with serving(tmp_path, program=NEW_KRON, **variables) as (client, server):
        assert variables_of(server).keys() >= secrets.keys()
        client.put("/workflows/flow/versions/1?user_id=ann", json={"nodes": []}).raise_for_status()
        workflow = {"kind": "workflow", "workflow_id": "flow", "version": 1, "user_id": "ann"}
        for name, launcher in (("own", {"kind": "process", "command": ["show"]}), ("executed", workflow)):
            assert upsert(client, launcher, name).status_code == 200
            assert ended(client, name)["result"] == "success"
            lines = (tmp_path / "env").read_text().splitlines()
            names = {line.partition("=")[0] for line in lines}
            assert {"PATH", "AWS_REGION", "KRON_IDENTITY"} <= names
            assert not names & {
                "PGPASSWORD",
                "AWS_SECRET_ACCESS_KEY",
                "MY_TOKEN",
                "KRON_EXECUTOR",
                "KRON_STORE",
            }
            assert f"KRON_IDENTITY={name}" in lines


def variables_of(server: Process) -> dict[str, str]:
    text = Path(f"/proc/{server.pid}/environ").read_bytes().split(b"\0")
    return dict(os.fsdecode(each).partition("=")[::2] for each in text if each)


@pytest.mark.slow
def test_an_installed_launcher_needs_the_permission_of_the_operator(
    plugin_variables: dict[str, str], tmp_path: Path
) -> None:
    launcher: dict[str, object] = {"kind": "queue", "queue": "nightly"}
    with serving(tmp_path, **plugin_variables) as (client, _):
        assert upsert(client, launcher).status_code == 200
    without = {**plugin_variables, "KRON_ALLOWED_LAUNCHERS": ""}
    with serving(tmp_path, **without) as (client, _):
        run = ended(client)
        reason = (
            "is not among the launchers the settings allow (allowed_launchers): add it to them, "
            'or name another launcher, such as {"kind": "log"}'
        )
        assert (run["result"], reason in str(run["error"])) == ("launch_failed", True)
        assert upsert(client, launcher, "another").json()["problems"] == [
            {"path": "launcher.kind", "value": "queue", "reason": reason}
        ]
    with serving(tmp_path, **without, KRON_DEFAULT_LAUNCHER=json.dumps(launcher)) as (client, _):
        work = {"workflow_id": "wf", "version": 1, "user_id": "ann"}
        document = {"schedule_id": "default", "cron_expr": "0 0 1 1 *", "timezone": "UTC", **work}
        client.post("/schedules/upsert", json=document).raise_for_status()
        client.post("/schedules/default/run").raise_for_status()
        wait_for((tmp_path / "nightly.queue").exists)
