"""Every example names its deadline, and the defaults of each form of a definition are those on the page."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from kron.core.job.file import definitions_in
from kron.core.job.job import Job, canonical, named_policy
from kron.core.job.policy import FRONT_DEFAULTS, POLICY
from kron.core.task.task import TaskConfig, job_of
from kron.fronts.service.schedule_spec import Rules, parse_definition, parse_schedule_spec
from kron.fronts.service.settings import Settings
from tests.docs.page import ROOT, blocks_of

# The page of a rule about deadlines, which breaks it on purpose.
EXEMPT = {"docs/reference/lint.md"}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FILES = [path for path in sorted((ROOT / "examples").iterdir()) if path.suffix in (".yaml", ".json", ".py")]


def blocks(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the language and the text of each example in a page or file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from ((block.language, block.text) for block in blocks_of(text))
    else:
        yield path.suffix.removeprefix("."), text


def definitions(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the jobs of a YAML or JSON text that is a job file."""
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError:
        return
    for _, definition in definitions_in(content):
        if "schedule" in canonical(definition, [])[0]:
            yield definition


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [*PAGES, *FILES], ids=name_of)
def test_every_definition_of_a_page_or_an_example_names_its_deadline(path: Path) -> None:
    silent: list[object] = []
    for language, text in blocks(path):
        if name_of(path) in EXEMPT:
            continue
        if language in ("yaml", "json"):
            silent += [each for each in definitions(text) if "deadline" not in named_policy(each)]
        elif language in ("python", "py"):
            calls = len(re.findall(r"Job\.from_dict\(|kron\.Job\(", text))
            if calls > text.count("deadline"):
                silent.append(text[:60])
    assert not silent


# --- the defaults of each form ---------------------------------------------------------------------


def written(front: str, name: str) -> str:
    value = POLICY[name].type.write(getattr(FRONT_DEFAULTS[front], name))
    shown = "none" if value is None else f"`{value}`"
    setting = {"overlap": "default_overlap_policy", "catchup": "default_catchup_policy"}.get(name)
    return f"{shown}, or the setting `{setting}`" if front == "service" and setting else shown


def test_the_page_has_every_default_that_differs_between_the_forms() -> None:
    page = (ROOT / "docs" / "reference" / "jobs.md").read_text(encoding="utf-8")
    differing = [
        row for row in POLICY.rows if len({getattr(each, row.name) for each in FRONT_DEFAULTS.values()}) > 1
    ]
    assert [row.name for row in differing] == ["overlap", "deadline", "catchup", "on_orphan"]
    for row in differing:
        columns = " | ".join(written(front, row.name) for front in ("job", "service", "scheduler"))
        assert f"| `{row.word}` | {columns} |" in page


def test_each_form_has_the_defaults_of_the_table() -> None:
    schedule = {"identity": "a", "schedule": "0 0 * * *"}
    assert Job.from_dict(schedule).policy == FRONT_DEFAULTS["job"]
    document = {**schedule, "timezone": "UTC", "launcher": {"kind": "http", "url": "http://example.com/"}}
    for rules in (Rules(), Settings().rules):
        spec = parse_schedule_spec(document, rules, schedule_id="a")
        assert spec.job.policy == FRONT_DEFAULTS["service"]
        assert parse_definition(document, rules).job.policy == FRONT_DEFAULTS["job"]
    task = job_of(TaskConfig("a", "0 0 * * *", timedelta(minutes=1)), "UTC")
    assert task.policy == replace(FRONT_DEFAULTS["scheduler"], retry_delay=timedelta(minutes=1))
