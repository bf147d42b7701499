"""The playground as values: what is typed, what it does, and its copies for other tools."""

import json
from datetime import UTC, datetime

import yaml

import kron
from kron.fronts.operator.resource import document_of, kronjob_of
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
        "CRON_TZ=Europe/Berlin",
        "30 2 * * * /usr/local/bin/my-job",
    ]
    manifest = yaml.safe_load(text["Kubernetes"])
    manifest["metadata"] |= {"namespace": "default", "uid": "1", "resourceVersion": "1"}
    fields = document_of(kronjob_of(manifest), {})
    operated = kron.Job.from_dict({**fields, "identity": "my-job"})
    own = kron.Job.from_dict(document)
    assert (operated.schedule, operated.window, operated.distribution, operated.constraints) == (
        own.schedule, own.window, own.distribution, own.constraints,
    )  # fmt: skip


def test_an_expression_without_a_crontab_says_so() -> None:
    assert "No crontab has these times" in copies(playground_of(Typed("0 0 LW * *"), NOW))["crontab"]


def test_every_problem_names_its_field() -> None:
    typed = Typed("61 * * * *", "Mars", constraints="[]", distribution="normal", parameters="{")
    paths = [problem.path for problem in playground_of(typed, NOW).problems]
    assert paths[:2] == ["parameters", "constraints"]
    assert {"schedule", "timezone"} <= set(paths)
    assert "never" in str(playground_of(Typed("0 0 30 2 *"), NOW).problems[0]).lower()
