"""The playground as values: what is typed, what it does, and its copies for other tools."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

import kron
from kron.cli.support.job_file import load_jobs
from kron.core.cron.crontab import parse_crontab
from kron.core.lint.lint import lint_policy
from kron.core.time.instant import rfc3339
from kron.fronts.operator.dry_run import planned_jobs, read_manifests
from kron.fronts.service.web.playground import Playground, Typed, playground_of

NOW = int(datetime(2026, 3, 27, 12, 0, 0, tzinfo=UTC).timestamp()) * 1000
WHOLE = Typed(
    cron="30 2 * * *",
    zone="Europe/Berlin",
    window="20m",
    mode="after",
    distribution="skewEarly",
    parameters='{"shape": 3}',
    constraints='{"avoid": {"dow": ["sat"]}}',
)


def copies(shown: Playground) -> dict[str, str]:
    return {copy.name: copy.text for copy in shown.copies}


def test_a_typed_schedule_has_a_sentence_lint_pictures_and_starts() -> None:
    shown = playground_of(WHOLE, NOW)
    assert shown.problems == []
    assert shown.sentence == "At 02:30 every day"
    assert [str(finding.code) for finding in shown.findings] == ["KRON009", "KRON010"]
    assert shown.window is not None
    assert shown.day is not None
    assert len(shown.coming) == 20
    job = kron.Job.from_dict(json.loads(copies(shown)["JSON"])["jobs"][0])
    for start in shown.coming[:5]:
        decision = kron.decide(job, datetime.fromisoformat(start.period_id))
        assert decision.to_dict()["chosen_time"] == start.fires.iso
    assert any("clocks go forward" in note for _, note in shown.notes)


def test_every_copy_is_the_same_definition() -> None:
    text = copies(playground_of(WHOLE, NOW))
    (document,) = json.loads(text["JSON"])["jobs"]
    assert yaml.safe_load(text["YAML"])["jobs"] == [document]
    scope: dict[str, object] = {}
    exec(text["Python"], scope)
    assert scope["job"] == kron.Job.from_dict(document)
    assert text["crontab"].splitlines() == [
        "# A crontab has neither windows nor constraints: this starts at the nominal times.",
        "# At clock changes cron starts jobs at other times; kron import lists each of a year.",
        "# cronie and Kron use CRON_TZ; Debian's cron ignores it and uses the host's zone.",
        "CRON_TZ=Europe/Berlin",
        "30 2 * * * /usr/local/bin/my-job",
    ]
    (manifest,) = read_manifests([yaml.safe_load(text["Kubernetes"])])
    assert manifest.job == kron.Job.from_dict(document)


@pytest.mark.parametrize(
    "typed",
    [
        Typed("30 2 * * mon-fri", "Europe/Berlin", "2h", "around", "normal"),
        WHOLE,
        Typed("CRON_TZ=Asia/Tokyo 5-59/20 22-2 * jan-mar *"),
        Typed("H 3 * * sun"),
        Typed("0 9 1,15 * fri", "America/New_York"),
        Typed("@hourly"),
    ],
    ids=lambda typed: typed.cron,
)
def test_every_copy_that_is_read_back_has_the_same_starts(typed: Typed, tmp_path: Path) -> None:
    shown = playground_of(typed, NOW)
    text, periods = copies(shown), [each.period_id for each in shown.coming]
    for name, file in (("YAML", "jobs.yaml"), ("JSON", "jobs.json")):
        (tmp_path / file).write_text(text[name])
        (job,) = load_jobs(str(tmp_path / file))
        decisions = [kron.decide(job, datetime.fromisoformat(period)).to_dict() for period in periods]
        assert [each["chosen_time"] for each in decisions] == [each.fires.iso for each in shown.coming]
    # No definition is offered that kron lint warns of.
    assert lint_policy(job.policy, json.loads(text["JSON"])["jobs"][0]["policy"]) == []
    manifests = read_manifests([yaml.safe_load(text["Kubernetes"])])
    planned = [each.to_dict() for each in planned_jobs(manifests, NOW // 1000 + 1, len(periods))]
    assert [each["nominal_time"] for each in planned] == periods
    assert [each["chosen_time"] for each in planned] == [each.fires.iso for each in shown.coming]
    # A crontab has no constraints, and says so.
    if not typed.constraints:
        assert next_times(job.schedule, len(periods)) == periods
        (entry,) = parse_crontab(text["crontab"])
        assert next_times(kron.Schedule(entry.expression, entry.timezone), len(periods)) == periods


def next_times(schedule: kron.Schedule, count: int) -> list[str]:
    times, at = list[str](), NOW // 1000
    for _ in range(count):
        following = schedule.plan.next_after(at)
        assert following is not None
        times.append(rfc3339(following))
        at = following
    return times


def test_a_job_of_every_boot_has_no_time_in_its_copies() -> None:
    shown = playground_of(Typed("@reboot"), NOW)
    assert (shown.sentence, shown.findings, shown.coming) == ("At every boot of the host", [], [])
    assert copies(shown)["crontab"] == "@reboot /usr/local/bin/my-job\n"


def test_an_expression_without_a_crontab_says_so() -> None:
    assert "No crontab has these times" in copies(playground_of(Typed("0 0 LW * *"), NOW))["crontab"]


def test_every_problem_names_its_field() -> None:
    typed = Typed("61 * * * *", "Mars", constraints="[]", distribution="normal", parameters="{")
    paths = [problem.path for problem in playground_of(typed, NOW).problems]
    assert paths[:2] == ["parameters", "constraints"]
    assert {"schedule", "timezone"} <= set(paths)
    (problem,) = playground_of(Typed("0 9 * * *", parameters='{"shape": 3}'), NOW).problems
    assert problem.path == "parameters"
    assert "never" in str(playground_of(Typed("0 0 30 2 *"), NOW).problems[0]).lower()
