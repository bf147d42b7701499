"""The registry of launcher kinds: a kind that the documentation shows works everywhere with one line."""

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import jsonschema
import pytest

from kron.app.launchers import (
    KINDS,
    build_launchers,
    launcher_schema,
    read_common_launcher,
    read_launcher,
    redact_launcher,
    secrets_in_launcher,
    traits_by_kind,
)
from kron.core.plan.report import Traits
from kron.core.redaction import HIDDEN
from kron.fronts.service.errors import InvalidScheduleError
from kron.fronts.service.registrar import NAMESPACE, Registrar
from kron.fronts.service.schedule_spec import Rules
from kron.launchers.celery.spec import AWAITED
from kron.launchers.process.spec import ProcessOptions
from kron.launchers.spec import InvalidLauncherError, LauncherConfig, LauncherContext, launcher_text_of
from kron.ports import Store
from kron.runtime.engine import Engine
from kron.runtime.journal import LogJournal
from kron.testing import SimulatedClock
from tests.docs.page import ROOT, blocks_of
from tests.service.registrar_rig import HOURLY, NOON, SECOND

PAGE = ROOT / "docs" / "how-to" / "write-a-launcher.md"
OBJECTS: dict[str, dict[str, object]] = {
    "callback": {"kind": "callback", "name": "f"},
    "process": {
        "kind": "process",
        "command": ["true"],
        "env": {"A": "b"},
        "stdin": {"a": [1]},
        "survive": True,
    },
    "process, a shell": {"kind": "process", "command": "exit 1", "cwd": "/tmp", "max_output": 2_000},
    "http": {"kind": "http", "url": "https://h/x", "headers": {"A": "b"}, "timeout": "5s", "reports": True},
    "celery": {"kind": "celery", "task": "t", "queue": "q", "args": [1], "kwargs": {"a": None}},
    "kubernetes": {"kind": "kubernetes", "namespace": "n", "name": "a", "template": {"spec": {}}},
    "workflow": {"kind": "workflow", "workflow_id": "w", "version": 1, "user_id": "u"},
}


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[ModuleType]:
    """Yield the module that the page shows, with its kind in the registry."""
    (text,) = (block.text for block in blocks_of(PAGE.read_text("utf-8")) if block.file == "spool.py")
    (tmp_path / "spool.py").write_text(text)
    spec = importlib.util.spec_from_file_location("spool", tmp_path / "spool.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    KINDS[module.SPOOL.name] = module.SPOOL
    try:
        yield module
    finally:
        del KINDS[module.SPOOL.name]


async def test_each_launcher_has_the_traits_that_its_kind_states(tmp_path: Path) -> None:
    """Jobs are planned by the traits of their kind, whatever launcher a worker has."""
    config = LauncherConfig((ProcessOptions(folder=str(tmp_path)),))
    launchers = build_launchers(LauncherContext(SimulatedClock(NOON), config))
    traits = traits_by_kind()
    try:
        assert {name: launcher.traits for name, launcher in launchers.items()} == {
            name: traits[name] for name in launchers
        }
        assert launchers.keys() >= {"process", "http", "celery", "celery:reports", AWAITED}
    finally:
        for launcher in launchers.values():
            await launcher.close(wait=False)


async def test_a_new_kind_is_read_checked_shown_and_run_after_one_line(
    spool: ModuleType, store: Store, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    options = spool.SpoolOptions(allowed_folders=frozenset({f"{tmp_path}/out"}))
    config = LauncherConfig((options, ProcessOptions(folder=str(tmp_path))))
    clock = SimulatedClock(NOON + SECOND)
    launchers = build_launchers(LauncherContext(clock, config))
    engine = Engine(store, clock, launchers, namespace=NAMESPACE, owner="test", journal=LogJournal())
    registrar = Registrar(store, clock, rules=Rules(launchers=config), wake=engine.call)
    document = {**HOURLY, "launcher": {"kind": "spool", "folder": f"{tmp_path}/out", "password": "hunter22"}}
    try:
        await registrar.upsert_schedule(document)
        await engine.acquire()
        engine.run()
        await clock.advance_to(NOON.replace(hour=13) + SECOND)
        shown = (await registrar.get_schedule("hourly"))["launcher"]
        (run,) = await store.runs(NAMESPACE, "hourly")
    finally:
        engine.kill()
        for launcher in launchers.values():
            await launcher.close(wait=False)
    assert shown == {
        "kind": "spool", "folder": f"{tmp_path}/out", "password": HIDDEN,
        "workflow_id": "wf", "version": 3, "user_id": "ann",
    }  # fmt: skip
    assert (run.status, run.run_id) == ("ENQUEUED", run.key[:8])
    assert "hunter22" in (tmp_path / "out" / run.key).read_text()


def test_the_limits_errors_secrets_traits_and_schema_of_a_new_kind_are_its_own(
    spool: ModuleType, store: Store
) -> None:
    rules = Rules(launchers=LauncherConfig((spool.SpoolOptions(allowed_folders=frozenset()),)))
    registrar = Registrar(store, SimulatedClock(NOON), rules=rules)
    launcher = {"kind": "spool", "folder": "x", "password": "hunter22"}
    with pytest.raises(InvalidScheduleError, match=r"launcher\.folder .* settings allow"):
        registrar.read_spec({**HOURLY, "launcher": launcher})
    with pytest.raises(InvalidLauncherError) as refused:
        read_launcher({"kind": "spool", "password": ["hunter22"]})
    assert {problem.path for problem in refused.value.problems} == {"launcher.folder", "launcher.password"}
    assert "hunter22" not in str(refused.value)
    assert secrets_in_launcher(launcher) == ["hunter22"]
    assert traits_by_kind({"kind": "spool", "folder": "x"})["workflow"] == Traits(
        reports=False, idempotent=True, enqueues=True, remote=True
    )
    jsonschema.validate(launcher, launcher_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**launcher, "colour": "red"}, launcher_schema())


# --- the kinds of Kron -----------------------------------------------------------------------------


@pytest.mark.parametrize("launcher", OBJECTS.values(), ids=OBJECTS)
def test_what_is_read_is_valid_by_the_schema_as_given_and_as_stored(launcher: dict[str, object]) -> None:
    stored = read_launcher(launcher).to_dict()
    for document in (launcher, stored):
        jsonschema.validate(document, launcher_schema())
    assert read_launcher(stored) == read_launcher(launcher)


@pytest.mark.parametrize(
    "launcher",
    [
        {"kind": "pigeon"}, {"kind": "http"}, {"kind": "http", "url": 5}, {"kind": "process", "command": []},
        {"kind": "http", "url": "http://h/", "command": "x"}, {"kind": "celery", "task": "a b"},
        {"kind": "workflow", "workflow_id": "w"}, {"kind": "process", "command": ["x"], "max_output": 1},
        {"kind": "callback", "version": "1"},
    ],
)  # fmt: skip
def test_what_the_schema_refuses_is_refused(launcher: dict[str, object]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(launcher, launcher_schema())
    with pytest.raises(InvalidLauncherError):
        read_launcher(launcher)


def test_stored_launcher_objects_are_as_they_always_were() -> None:
    """The text is part of a schedule's ETag, and an upsert that changes it is an edit."""
    texts = {name: launcher_text_of(read_launcher(launcher)) for name, launcher in OBJECTS.items()}
    assert texts == {
        "callback": '{"kind":"callback","name":"f"}',
        "process": '{"kind":"process","command":["true"],"env":{"A":"b"},"cwd":null,"stdin":{"a":[1]},'
        '"max_output":65536,"survive":true}',
        "process, a shell": '{"kind":"process","command":"exit 1","env":{},"cwd":"/tmp","stdin":null,'
        '"max_output":2000,"survive":false}',
        "http": '{"kind":"http","url":"https://h/x","headers":{"A":"b"},"timeout":"5s","connect_timeout":"5s",'
        '"reports":true,"workflow_id":null,"version":null,"user_id":null}',
        "celery": '{"kind":"celery","task":"t","queue":"q","args":[1],"kwargs":{"a":null},"reports":false,'
        '"workflow_id":null,"version":null,"user_id":null}',
        "kubernetes": '{"kind":"kubernetes","namespace":"n","name":"a","template":{"spec":{}}}',
        "workflow": '{"kind":"workflow","workflow_id":"w","version":1,"user_id":"u"}',
    }


def test_a_launcher_object_that_cannot_be_read_shows_nothing_of_itself() -> None:
    assert redact_launcher('{"kind": "http", "url": "ftp://ann:hunter22@h/"}') == {"kind": "callback"}
    assert redact_launcher(json.dumps(OBJECTS["http"]))["headers"] == {"A": HIDDEN}


def test_equal_launcher_objects_are_read_once_and_no_other_is_taken_for_them() -> None:
    given = {**OBJECTS["http"], "reports": True}
    assert read_common_launcher({**given}) is read_common_launcher({**given})
    assert read_common_launcher({**given}) == read_launcher(given)
    with pytest.raises(InvalidLauncherError):
        read_common_launcher({**given, "reports": 1})


def test_a_launcher_object_that_is_no_json_is_read_as_it_is() -> None:
    with pytest.raises(InvalidLauncherError, match="timeout"):
        read_common_launcher({**OBJECTS["http"], "timeout": object()})


def test_what_a_caller_does_with_a_redacted_launcher_stays_with_the_caller() -> None:
    text = json.dumps(OBJECTS["http"])
    redact_launcher(text).clear()
    assert redact_launcher(text)["headers"] == {"A": HIDDEN}


def test_options_are_found_by_their_type_and_restrict_nothing_by_default() -> None:
    @dataclass(frozen=True)
    class Limits:
        most: int | None = None

    assert LauncherConfig().get(Limits).most is None
    assert LauncherConfig((OBJECTS, Limits(3))).get(Limits).most == 3
