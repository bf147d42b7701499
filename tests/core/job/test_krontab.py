"""krontab lines: the same definitions as job files, problems with line and column, and lines written back."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kron.core.errors import InputError, InvalidJobFileError
from kron.core.job.file import jobs_from
from kron.core.job.job import Job
from kron.core.job.krontab import DIRECTIVES, InvalidKrontabError, krontab_line, parse_krontab
from tests.job_strategies import Definition, definitions
from tests.strategies import law

FULL = (
    "30 2 * * *  @tz(Europe/Berlin) @win(after,1h) @dist(skewLate,shape=2.5) @seed(daily,salt=2026)"
    " @policy(concurrency=replace,deadline=10m,suspend=true) @only(hours=0-5,7,dow=mon-fri)"
    " @avoid(dates=2026-12-24..2026-12-26;between=01:00-01:30)  name=backup run_timeout=2h"
    ' description="nightly, at 100 %" tags=["a","b"] retention.keep=30d dst_gap=next  # by hand'
)
SAME = {
    "identity": "prod/backup",
    "schedule": "30 2 * * *",
    "timezone": "Europe/Berlin",
    "window": {"mode": "after", "duration": "1h"},
    "distribution": {"name": "skewLate", "shape": 2.5},
    "seed": {"strategy": "daily", "salt": "2026"},
    "policy": {"concurrency": "replace", "deadline": "10m", "suspend": True, "run_timeout": "2h"},
    "constraints": {
        "only": {"hours": ["0-5", 7], "dow": "mon-fri"},
        "avoid": {"dates": ["2026-12-24..2026-12-26"], "between": "01:00-01:30"},
    },
    "description": "nightly, at 100 %",
    "tags": ["a", "b"],
    "retention": {"keep": "30d"},
    "dst_gap": "next",
}


def documents(text: str, stem: str = "prod") -> list[dict[str, object]]:
    return parse_krontab(text, stem=stem).content["jobs"]


def only(text: str) -> dict[str, object]:
    [document] = documents(text)
    return document


def test_a_line_with_every_directive_is_the_same_job_as_a_job_file() -> None:
    assert Job.from_dict(only(FULL)) == Job.from_dict(SAME)


@pytest.mark.parametrize(
    ("line", "schedule"),
    [
        ("0 9 * * 1-5 name=a", "0 9 * * 1-5"),
        ("*/10 * * * * * name=a", "*/10 * * * * *"),
        ("@daily name=a", "@daily"),
        ("\t0 9\t* *  * @tz(UTC) name=a\r", "0 9\t* *  *"),
        ("H(0-29) H * * * name=a", "H(0-29) H * * *"),
    ],
)
def test_an_expression_has_five_fields_six_or_is_a_macro(line: str, schedule: str) -> None:
    assert only(line)["schedule"] == schedule


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("a=b", "a=b"),
        ('"a b"', "a b"),
        (r'"a\tb\"c\\"', 'a\tb"c\\'),
        ("'a \\b\"'", 'a \\b"'),
        ('""', ""),
        ("true", "true"),
        ("12", "12"),
        ("null", None),
    ],
)
def test_a_text_is_bare_or_quoted_and_needs_no_quotes_to_be_a_text(value: str, read: str | None) -> None:
    assert only(f"@daily name=a description={value}")["description"] == read


@pytest.mark.parametrize(
    ("field", "path", "read"),
    [
        ("suspend=true", "suspend", True),
        ("jitter_ms=500", "jitter_ms", 500),
        ("deadline=null", "deadline", None),
        ("deadline=90", "deadline", 90),
        ("deadline=10m", "deadline", "10m"),
        ('tags=["a", "b"]', "tags", ["a", "b"]),
        ('launcher={"kind": "x", "words": ["a", "b c"]}', "launcher", {"kind": "x", "words": ["a", "b c"]}),
        ("policy.queue_max=3", "policy", {"queue_max": 3}),
        ("env.PATH=/bin", "env", {"PATH": "/bin"}),
        ("env.COUNT=3", "env", {"COUNT": "3"}),
    ],
)
def test_a_field_has_the_type_its_table_says(field: str, path: str, read: object) -> None:
    assert only(f"@daily name=a {field}")[path] == read


PROCESS = (
    '0 2 * * * name=a command="backup --all" shell=/bin/bash user=1000 group=www cwd=/srv env.LANG=C'
    ' umask=022 nice=5 stdin="a\\nb\\n" stdout=discard stderr={"file":"/var/log/a"} success_exit_codes=[0,3]'
    " on_remove=terminate env_file=/etc/a.env replace_grace=30s"
)


def test_the_fields_of_a_process_are_those_of_a_job_file() -> None:
    expected = Job.from_dict(
        {
            "identity": "prod/a",
            "schedule": "0 2 * * *",
            "command": "backup --all",
            "shell": "/bin/bash",
            "user": 1000,
            "group": "www",
            "cwd": "/srv",
            "env": {"LANG": "C"},
            "env_file": "/etc/a.env",
            "umask": "022",
            "nice": 5,
            "stdin": "a\nb\n",
            "stdout": "discard",
            "stderr": {"file": "/var/log/a"},
            "success_exit_codes": [0, 3],
            "on_remove": "terminate",
            "replace_grace": "30s",
        }
    )
    assert Job.from_dict(only(PROCESS)) == expected
    line = krontab_line(expected, stem="prod")
    assert 'command="backup --all"' in line
    assert "launcher" not in line
    assert Job.from_dict(only(line)) == expected


def test_blank_lines_and_comments_are_no_jobs_and_lines_are_counted_from_one() -> None:
    text = "\ufeff# all\n\n@daily name=a\n  # more\n@hourly name=b # end\n"
    krontab = parse_krontab(text, stem="x")
    assert [job["identity"] for job in krontab.content["jobs"]] == ["x/a", "x/b"]
    assert krontab.places["jobs[0]"] == (3, 1)
    assert krontab.places["jobs[1].identity"] == (5, 9)


def test_a_name_makes_the_identity_with_the_file_and_an_identity_stands_alone() -> None:
    text = "@daily name=a\n@daily identity=b"
    krontab = parse_krontab(text, stem="x")
    assert [job["identity"] for job in krontab.content["jobs"]] == ["x/a", "b"]
    assert krontab.named == {"jobs[0]"}


@pytest.mark.parametrize(
    ("line", "column", "text", "reason"),
    [
        ("0 9 * * name=a", 1, "0 9 * *", "has 4 fields"),
        ("0 0 9 * * * * name=a", 1, "0 0 9 * * * *", "has 7 fields"),
        ("CRON_TZ=UTC 0 9 * * * name=a", 1, "", "has 0 fields"),
        ("0 9 * * * @tx(UTC) name=a", 11, "@tx", "is no directive"),
        ("@daily @tz name=a", 8, "@tz", "is no directive"),
        ("@daily @tz(UTC name=a", 8, "@tz(UTC name=a", "has no closing parenthesis"),
        ("@daily @win() name=a", 8, "@win()", "is empty"),
        ("@daily @win(after,1h,2h) name=a", 22, "2h", "has no name"),
        ("@daily @policy(forbid) name=a", 16, "forbid", "has no name"),
        ("@daily @only(9-17) name=a", 14, "9-17", "has no name"),
        ("@daily @tz(UTC) @tz(UTC) name=a", 21, "timezone", "is given twice"),
        ("@daily @policy(deadline=1m) policy.deadline=2m name=a", 29, "policy.deadline", "is given twice"),
        ("@daily name=a name=b", 15, "name", "is given twice"),
        ("@daily name=a identity=b", 8, "name=a", "conflicts with identity"),
        ("@daily description=x", 1, "@daily description=x", "has no name"),
        ("@daily name=a command=b c", 25, "c", "is neither a directive nor a field"),
        ("@daily name= a", 13, "", "has no value"),
        ('@daily name="a', 13, '"a', "has no end"),
        ("@daily name='a", 13, "'a", "has no end"),
        (r'@daily name="\x"', 13, r'"\x"', "has an unknown escape"),
        ("@daily name=a tags=[a]", 20, "[a]", "is not JSON"),
        ("@daily name=a tags=" + "[" * 2000, 20, "[" * 2000, "is not JSON"),
        ("@daily name=a tags=1 tags.x=2", 22, "tags.x", "conflicts with tags"),
    ],
)
def test_a_problem_has_its_line_its_column_the_text_and_a_remedy(
    line: str, column: int, text: str, reason: str
) -> None:
    with pytest.raises(InvalidKrontabError) as caught:
        parse_krontab(f"# first\n{line}\n@daily\n", stem="x", file="a.krontab")
    first, second = caught.value.problems
    assert isinstance(first, tuple)
    assert first[:3] == (2, column, text)
    assert reason in first[3]
    assert first[4]
    assert caught.value.lines()[0].startswith(f"a.krontab:2:{column}:")
    assert caught.value.lines()[1] == f"a.krontab:{second}"


def test_a_problem_of_a_value_has_the_column_of_its_field() -> None:
    krontab = parse_krontab("@daily name=a\n0 9 * * * @policy(deadline=soon) name=b", stem="x")
    with pytest.raises(InvalidJobFileError) as caught:
        jobs_from(krontab.content)
    error = InvalidJobFileError(
        problems=caught.value.problems,
        file="x.krontab",
        lines={path: place.line for path, place in krontab.places.items()},
        columns={path: place.column for path, place in krontab.places.items()},
    )
    assert error.lines()[0].startswith('x.krontab:2:19: jobs[1].policy.deadline "soon"')


def test_every_directive_has_an_example_that_is_read() -> None:
    for directive in DIRECTIVES.values():
        Job.from_dict(only(f"0 9 * * * {directive.usage} name=a"))


# --- properties ----------------------------------------------------------------------------------


def bare(value: object) -> str:
    return value if isinstance(value, str) and value.isalnum() and value.isascii() else json.dumps(value)


def line_of(definition: Definition) -> str:
    """Write a definition as a line without the writer under test."""
    parts = [definition["schedule"]]
    if zone := definition.get("timezone"):
        parts.append(f"@tz({zone})")
    if window := definition.get("window"):
        parts.append(f"@win({window['mode']}, {window['duration']})")
    for name, word, first in (("distribution", "dist", "name"), ("seed", "seed", "strategy")):
        if given_part := definition.get(name):
            rest = [f"{key}={bare(value)}" for key, value in given_part.items() if key != first]
            parts.append(f"@{word}({','.join([given_part[first], *rest])})")
    if policy := definition.get("policy"):
        parts.append(f"@policy({'; '.join(f'{key}={bare(value)}' for key, value in policy.items())})")
    for side, kinds in definition.get("constraints", {}).items():
        listed = [f"{kind}={values_of(values)}" for kind, values in kinds.items()]
        parts += [f"@{side}({','.join(listed)})"] if listed else []
    return " ".join([*parts, f"identity={json.dumps(definition['identity'])}"])


def values_of(values: Any) -> str:
    return json.dumps(values) if isinstance(values, dict) else ", ".join(map(bare, values))


@given(definitions())
@law(200)
def test_a_krontab_line_and_a_job_file_give_equal_definitions(definition: Definition) -> None:
    assert Job.from_dict(only(line_of(definition))) == Job.from_dict(definition)


@given(definitions())
@example({"identity": "null", "schedule": "@daily"})
@example({"identity": "a b", "schedule": "0 0 * * *", "policy": {"deadline": None}})
@law(200)
def test_a_job_that_is_written_as_a_line_is_read_back_as_it_was(definition: Definition) -> None:
    job = Job.from_dict(definition)
    assert Job.from_dict(only(krontab_line(job))) == job
    if "/" in job.identity and not job.identity.startswith("/"):
        stem = job.identity.partition("/")[0]
        assert Job.from_dict(documents(krontab_line(job, stem=stem), stem)[0]) == job


def test_a_job_that_no_line_can_express_is_refused_with_the_remedy() -> None:
    job = Job.from_dict({"identity": "a", "schedule": " CRON_TZ=UTC  0 9 * * *"})
    with pytest.raises(InputError, match="use a job file"):
        krontab_line(job)


PIECES = [*"@tzwinpolicy(),;=\"'[]{}#0123456789* \t\\.-\n", "name=a ", "@tz(", "@only(", "é", "\x00"]
NEAR = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


@given(st.text(max_size=80) | NEAR | NEAR.map(lambda text: f"0 9 * * * name=a {text}"))
@law(400)
def test_any_text_is_read_or_refused_with_places_inside_it(text: str) -> None:
    lines = text.removeprefix("\ufeff").split("\n")
    try:
        krontab = parse_krontab(text, stem="x")
    except InvalidKrontabError as error:
        for problem in error.problems:
            assert isinstance(problem, tuple)
            assert 1 <= problem[0] <= len(lines)
            assert 1 <= problem[1] <= len(lines[problem[0] - 1]) + 1
    else:
        for line, column in krontab.places.values():
            assert 1 <= column <= len(lines[line - 1])
