"""`kron import` of CronJobs: the same starts as KronJobs, and what differs."""

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import yaml

from kron.cli.main import run
from kron.core.job.decision import nominal_times
from kron.core.time.instant import rfc3339, seconds_of
from kron.fronts.operator.from_cronjob import cronjobs_in, kronjob_from
from kron.fronts.operator.resource import definition_of, kronjob_of
from tests.kubernetes.cluster import START, TEMPLATE


def cronjob(schedule: str = "0 3 * * *", **spec: Any) -> dict[str, Any]:
    metadata = {"name": "backup", "namespace": "prod", "uid": "x", "resourceVersion": "1"}
    document = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata}
    return {**document, "spec": {"schedule": schedule, "jobTemplate": TEMPLATE, **spec}}


def days_of(document: dict[str, Any], count: int) -> list[str]:
    manifest = kronjob_from(document).manifest
    assert manifest is not None
    job = definition_of(kronjob_of(manifest), {}).job
    return [rfc3339(time)[:10] for time in islice(nominal_times(job, seconds_of(START), None), count)]


def test_every_field_of_a_cronjob_has_its_place() -> None:
    given = cronjob(
        timeZone="Europe/Berlin", concurrencyPolicy="Forbid", startingDeadlineSeconds=90, suspend=True,
        successfulJobsHistoryLimit=5, failedJobsHistoryLimit=2,
    )  # fmt: skip
    imported = kronjob_from(given)
    assert imported.manifest == {
        "apiVersion": "kron.io/v1alpha1",
        "kind": "KronJob",
        "metadata": {"name": "backup", "namespace": "prod"},
        "spec": {
            "schedule": "0 3 * * *",
            "timezone": "Europe/Berlin",
            "policy": {"concurrency": "forbid", "deadline": "90s", "catchup": "once", "suspend": True},
            "successfulJobsHistoryLimit": 5,
            "failedJobsHistoryLimit": 2,
            "jobTemplate": TEMPLATE,
        },
    }


def test_without_policies_a_cronjob_allows_overlaps_and_is_never_too_late() -> None:
    manifest = kronjob_from(cronjob()).manifest
    assert manifest is not None
    assert manifest["spec"]["policy"] == {"concurrency": "allow", "deadline": "never", "catchup": "once"}


def test_the_day_rule_is_that_of_kubernetes() -> None:
    """Sundays, or the 1st, 11th, 21st and 31st: Kubernetes joins these two by "or"."""
    imported = kronjob_from(cronjob("0 0 */10 * Sun"))
    assert any("day rule" in note for note in imported.notes)
    assert days_of(cronjob("0 0 */10 * Sun"), 4) == ["2026-06-07", "2026-06-11", "2026-06-14", "2026-06-21"]
    assert days_of(cronjob("0 0 13 * */3"), 3) == ["2026-06-03", "2026-06-06", "2026-06-07"]


@pytest.mark.parametrize("prefix", ["TZ", "CRON_TZ"])
def test_a_zone_in_the_schedule_is_the_zone_of_the_kronjob(prefix: str) -> None:
    imported = kronjob_from(cronjob(f"{prefix}=Europe/Berlin 0 0 */10 * Sun"))
    assert imported.manifest is not None
    assert imported.manifest["spec"]["timezone"] == "Europe/Berlin"
    assert imported.manifest["spec"]["schedule"] == "0 0 1-31/10 * Sun"
    assert any("day rule" in note for note in imported.notes)
    assert not any("no timeZone" in note for note in imported.notes)


@pytest.mark.parametrize("schedule", ["0 0 */10 * *", "0 0 * * */2", "0 0 13 * *", "0 0 ? * ?", "@daily"])
def test_a_rule_that_is_the_same_in_both_is_left_alone(schedule: str) -> None:
    imported = kronjob_from(cronjob(schedule))
    assert imported.manifest is not None
    assert not any("day rule" in note for note in imported.notes)


def test_a_cronjob_that_cannot_be_a_kronjob_says_why() -> None:
    imported = kronjob_from(cronjob("@every 1h"))
    assert (imported.manifest, bool(imported.problem)) == (None, True)


def test_the_command_prints_kronjobs_and_notes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cronjobs.yaml"
    file.write_text(yaml.safe_dump({"kind": "List", "items": [cronjob(), cronjob("0 0 */10 * Sun")]}))
    assert run(["import", str(file)]) == 0
    out, err = capsys.readouterr()
    assert [each["spec"]["schedule"] for each in yaml.safe_load_all(out)] == [
        "0 3 * * *",
        "0 0 1-31/10 * Sun",
    ]
    assert "day rule" in err
    file.write_text(yaml.safe_dump(cronjob("@every 1h")))
    assert run(["import", str(file), "--json"]) == 1
    file.write_text("kind: Job")
    assert run(["import", str(file)]) == 2
    assert cronjobs_in([None, "text"]) == []


def test_the_command_refuses_a_folder_for_kronjobs_and_names_the_line_of_a_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cronjobs.yaml"
    file.write_text(yaml.safe_dump(cronjob()))
    assert run(["import", str(file), "-o", str(tmp_path / "new")]) == 2
    assert "it is for crontabs; redirect the output: kron import cronjob.yaml > kronjob.yaml" in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "new").exists()
    file.write_text("kind: CronJob\nspec: [\n")
    assert run(["import", str(file)]) == 2
    assert f"{file}:2: it is not YAML" in capsys.readouterr().err
