"""The glossary defines the terms of Kron, and the pages that people start from link to it."""

import re

import pytest

from tests.docs.page import ROOT

GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"
TERMS = (
    "period", "nominal time", "window", "chosen time", "fire time", "outcome", "run", "attempt", "lease",
    "shard", "worker", "namespace", "epoch", "cursor", "revision", "fencing token", "idempotency key",
    "catch-up", "overlap", "backfill", "tenant", "launcher", "executor", "next start", "data interval",
    "certificate", "incident", "orphan", "retention", "lookahead", "take-over", "drain",
    "phase", "dag", "dag run", "logical date", "pool", "kronjob",
)  # fmt: skip
SECTION = re.compile(r"^### ([^\n]+)\n\n(.+?)(?=\n\n#|\Z)", re.MULTILINE | re.DOTALL)


def sections() -> dict[str, str]:
    return {name.lower(): text for name, text in SECTION.findall(GLOSSARY.read_text(encoding="utf-8"))}


def test_every_term_is_defined_once_in_the_glossary() -> None:
    headings = re.findall(r"^### (.+)$", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(heading.lower() for heading in headings) == sorted(TERMS)


@pytest.mark.parametrize("term", TERMS)
def test_a_definition_is_a_sentence_or_a_few(term: str) -> None:
    definition = sections()[term]
    assert definition.rstrip().endswith(".")
    assert 10 <= len(definition.split()) <= 80


@pytest.mark.parametrize(
    ("page", "target"),
    [
        ("README.md", "docs/reference/glossary.md"),
        ("CONTRIBUTING.md", "docs/reference/glossary.md"),
        ("docs/index.md", "reference/glossary.md"),
        ("docs/reference/index.md", "glossary.md"),
        ("mkdocs.yml", "reference/glossary.md"),
    ],
)
def test_the_pages_that_people_start_from_link_to_the_glossary(page: str, target: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert f"]({target})" in text or f"- {target}\n" in text
