"""The starts of a tenant while another attacks the service: none is lost and none comes twice."""

from pathlib import Path

import pytest

from tests.abuse.experiment import ATTACKS, FLOODS, HANGS, QUIET, experimenting

# Every attack has to see a start of the neighbour, however busy the machine is.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(480)]


def test_a_neighbours_ledger_is_exact_during_every_attack(tmp_path: Path) -> None:
    """How late its starts are depends on the machine: `make abuse` measures that."""
    with experimenting(tmp_path) as experiment:
        rows = [experiment.row(name, 2.0) for name in (QUIET, *ATTACKS, HANGS, *list(FLOODS)[:1])]
    assert [(row.name, row.lost, row.doubled) for row in rows if row.lost or row.doubled] == []
    assert all(row.starts for row in rows)
