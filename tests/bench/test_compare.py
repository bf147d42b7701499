"""Results of two trees side by side: what is slower, what is noise."""

import json
from pathlib import Path

from bench.compare import comparisons, markdown


def results(path: Path, costs: dict[str, float | None], *, kind: str = "rate") -> Path:
    rows = [
        {"title": title, "contender": contender, "kind": kind, "cost": cost}
        for title, cost in costs.items()
        for contender in ("kron", "a peer")
    ]
    path.write_text(json.dumps({"parts": {"engine": {"rows": rows, "goals": []}}}))
    return path


def test_a_row_is_slower_only_if_the_ranges_are_apart(tmp_path: Path) -> None:
    before = [
        results(tmp_path / "b1", {"burst": 1.0e-4, "registered": 1.0e-4, "gone": 1.0}),
        results(tmp_path / "b2", {"burst": 1.3e-4, "registered": 1.1e-4}),
    ]
    after = [
        results(tmp_path / "a1", {"burst": 1.2e-4, "registered": 1.2e-4, "new": 1.0}),
        results(tmp_path / "a2", {"burst": 2.0e-4, "registered": 1.5e-4}),
    ]
    assert list(markdown(comparisons(before, after)))[2:] == [
        "| engine | burst | 10 k/s (7.69 k/s) | 8.33 k/s (5 k/s) | 1.20 | within noise |",
        "| engine | registered | 10 k/s (9.09 k/s) | 8.33 k/s (6.67 k/s) | 1.20 | slower |",
    ]


def test_sizes_are_less_or_more_and_missing_figures_are_left_out(tmp_path: Path) -> None:
    before = [results(tmp_path / "b", {"memory": 2000.0, "skipped": None}, kind="size")]
    after = [results(tmp_path / "a", {"memory": 1000.0, "skipped": 3.0}, kind="size")]
    (_, _, line) = markdown(comparisons(before, after))
    assert line == "| engine | memory | 2 kB | 1 kB | 0.50 | less |"
