"""The page of figures: a run of some parts replaces those, and the others stay."""

import bench.__main__
from tools.benchmark_page import PARTS, figures, goals, parts_of, renewed

MACHINE = {
    "cpus": 2,
    "system": "Linux",
    "architecture": "x86_64",
    "python": "CPython",
    "load": 0.1,
    "packages": {"kron-engine": "1"},
}
PAGE = """Before.

<!-- goals -->

<!-- part cron -->

| old cron |

<!-- part process -->

| old process |

<!-- end of goals -->

After.
"""


def run_of(*parts: str) -> dict[str, object]:
    goal = {"what": "quick", "wanted": "<= 1 s", "measured": "2 s", "met": False}
    row = {"title": "quick", "contender": "kron", "shown": "2 s", "ratio": None, "note": "slow"}
    return {"machine": MACHINE, "parts": {part: {"goals": [goal], "rows": [row]} for part in parts}}


def test_a_partial_run_renews_its_parts_and_leaves_the_others() -> None:
    page = renewed(PAGE, "goals", run_of("process", "embed"), goals)
    found = parts_of(page)
    assert list(found) == ["cron", "embed", "process"]
    assert found["cron"] == "| old cron |"
    assert found["embed"].endswith("| quick | <= 1 s | 2 s | **not met** |")
    assert "old process" not in page
    assert page.startswith("Before.\n\n<!-- goals -->\n")
    assert page.endswith("<!-- end of goals -->\n\nAfter.\n")


def test_the_same_run_twice_changes_nothing_more() -> None:
    page = PAGE.replace("goals", "figures")
    once = renewed(page, "figures", run_of("embed"), figures)
    assert renewed(once, "figures", run_of("embed"), figures) == once
    assert "### Quick" in once
    assert "a load of 0.1 at its end; kron-engine 1." in once


def test_the_page_has_a_place_for_every_part_that_is_measured() -> None:
    assert sorted(PARTS) == sorted(bench.__main__.PARTS)
