"""The page of the service leaves nothing out: routes, fields, settings with their defaults, error codes."""

import json
import re

import pytest

from kron.clocks.system import SystemClock
from kron.fronts.service.app import app_of
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.schedule_spec import SCHEDULE
from kron.fronts.service.settings import SETTINGS, Settings
from kron.stores.sqlite.dag import sqlite_dags
from kron.stores.sqlite.store import SqliteStore
from tests.docs.page import ROOT

PAGE = (ROOT / "docs" / "reference" / "service.md").read_text(encoding="utf-8")


def test_the_page_has_every_route_and_no_other() -> None:
    registrar = Registrar(SqliteStore(), SystemClock())
    registrar.dags = sqlite_dags()
    document = app_of(registrar, Settings()).openapi()
    routes = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
    cells = re.findall(r"^\| (`(?:GET|POST|PUT|DELETE) [^|]+)\|", PAGE, re.MULTILINE)
    assert {route for cell in cells for route in re.findall(r"`([^`]+)`", cell)} == routes


@pytest.mark.parametrize("field", SCHEDULE.words)
def test_the_page_has_every_field_of_a_schedule(field: str) -> None:
    assert f"`{field}`" in PAGE


@pytest.mark.parametrize("name", SETTINGS)
def test_the_page_has_every_setting_with_its_default_and_meaning(name: str) -> None:
    found = re.search(rf"^\| `{name}` \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
    assert found
    default = getattr(Settings(), name)
    if isinstance(default, str | int):
        text = default if isinstance(default, str) else json.dumps(default)
        assert found[1] == f"`{text}`"
    assert found[2] == SETTINGS[name].help_text
