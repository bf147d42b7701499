"""`kron operator --dry-run`: what KronJobs would create, with the times of every other front."""

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given

import kron
from kron.cli.main import run
from kron.core.job.decision import upcoming_from
from kron.core.time.instant import seconds_of
from kron.fronts.operator.dry_run import ManifestError, planned_jobs, read_manifests
from kron.fronts.operator.resource import manifest_of
from tests.job_strategies import definitions
from tests.kubernetes.cluster import START, TEMPLATE, kronjob

SINCE = seconds_of(START)


@given(definitions(constrained=False))
def test_the_chosen_times_are_those_of_the_library(definition: dict[str, Any]) -> None:
    job = kron.Job.from_dict({**definition, "policy": {}})
    manifest = manifest_of(job, namespace="default", name="a", template=TEMPLATE)
    expected = [(each.chosen_time, each.nominal_time) for each in islice(upcoming_from(job, SINCE), 3)]
    planned = planned_jobs(read_manifests([manifest]), SINCE, 3)
    assert [(each.chosen_time, each.nominal_time) for each in planned] == expected


def test_several_kronjobs_are_merged_and_a_suspended_one_creates_nothing() -> None:
    documents = [
        {"kind": "List", "items": [kronjob("a", "0 13 * * *"), kronjob("b", "30 12 * * *")]},
        kronjob("c", "* * * * *", policy={"suspend": True}),
        {"kind": "ConfigMap", "metadata": {"name": "x"}},
    ]
    planned = planned_jobs(read_manifests(documents), SINCE, 3)
    assert [each.kronjob for each in planned] == ["b", "a", "b"]


def test_a_calendar_of_the_file_is_known_to_its_kronjobs() -> None:
    calendar = {"kind": "KronCalendar", "metadata": {"name": "free"}, "spec": {"days": ["2026-06-01"]}}
    limited = kronjob("a", "0 13 * * *", constraints={"avoid": {"calendars": ["free"]}})
    (first,) = planned_jobs(read_manifests([limited, calendar]), SINCE, 1)
    assert first.to_dict()["nominal_time"] == "2026-06-02T13:00:00Z"


@pytest.mark.parametrize("documents", [[], [{"kind": "Job"}], ["text"], [{"kind": "KronJob"}]])
def test_a_file_without_a_kronjob_is_refused(documents: list[object]) -> None:
    with pytest.raises(ManifestError):
        read_manifests(documents)


def test_the_command_prints_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "kronjobs.yaml"
    file.write_text(yaml.safe_dump(kronjob("a", "0 13 * * *")))
    arguments = ["operator", "--dry-run", "-f", str(file), "--from", "2026-06-01", "-n", "1"]
    assert run(arguments) == 0
    assert capsys.readouterr().out.startswith(
        "2026-06-01T13:00:00Z  for 2026-06-01T13:00:00Z  default/a  job/a-"
    )
    assert run([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"][0]["kronjob"] == "a"
    assert run(["operator", "--dry-run"]) == 2
    assert run(["operator", "-f", str(file)]) == 2
    file.write_text("a: [")
    assert run(arguments) == 2
