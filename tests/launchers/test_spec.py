"""Launcher objects: what is right becomes settings, what is wrong is named with its path."""

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.app.launchers import read_launcher, settings_of
from kron.core.errors import InputError
from kron.launchers.callback import CallbackSettings
from kron.launchers.celery.spec import CeleryOptions
from kron.launchers.http.egress import egress_policy_of
from kron.launchers.http.spec import HttpOptions, HttpSettings
from kron.launchers.kubernetes.spec import KubernetesOptions
from kron.launchers.process.spec import ProcessOptions, ProcessSettings
from kron.launchers.spec import (
    MAX_TEXT,
    InvalidLauncherError,
    LauncherConfig,
    LauncherSettings,
    launcher_kind_of,
    launcher_text_of,
    settings_parser,
)
from tests.strategies import law

URL = "https://example.com/start"


@pytest.mark.parametrize(
    ("value", "expected", "kind"),
    [
        pytest.param({"kind": "callback"}, CallbackSettings(), "callback", id="callback"),
        pytest.param(
            {"kind": "process", "command": ["echo", "a b", ""]},
            ProcessSettings(command=("echo", "a b", "")),
            "process",
            id="process",
        ),
        pytest.param(
            {"kind": "process", "command": "echo $HOME | wc"},
            ProcessSettings(command="echo $HOME | wc"),
            "process",
            id="process, a text for the shell",
        ),
        pytest.param(
            {
                "kind": "process",
                "command": ["cat"],
                "env": {"B": "2", "A": "1"},
                "cwd": "/tmp",
                "stdin": {"rows": [1, None, "ü"]},
                "max_output": 1_024,
                "survive": True,
            },
            ProcessSettings(
                command=("cat",),
                env=(("A", "1"), ("B", "2")),
                cwd="/tmp",
                stdin='{"rows": [1, null, "ü"]}',
                max_output=1_024,
                survive=True,
            ),
            "process",
            id="process, all fields",
        ),
        pytest.param(
            {"kind": "callback", "workflow_id": "w", "version": 0},
            CallbackSettings(workflow_id="w", version=0),
            "callback",
            id="callback of a workflow",
        ),
        pytest.param(
            {"kind": "process", "command": ["x"], "workflow_id": "w", "version": 3, "user_id": "u"},
            ProcessSettings(command=("x",), workflow_id="w", version=3, user_id="u"),
            "process",
            id="process of a workflow",
        ),
        pytest.param({"kind": "http", "url": URL}, HttpSettings(url=URL), "http", id="http"),
        pytest.param(
            {"kind": "http", "url": URL, "reports": True},
            HttpSettings(url=URL, reports=True),
            "http:reports",
            id="http that reports",
        ),
        pytest.param(
            {
                "kind": "http",
                "url": "http://ann:pass@[::1]:8080/go?x=1",
                "headers": {"X-A": "b"},
                "timeout": "90s",
                "connect_timeout": 0.5,
                "reports": False,
                "workflow_id": "w",
                "version": 3,
                "user_id": "u",
            },
            HttpSettings(
                url="http://ann:pass@[::1]:8080/go?x=1",
                headers=(("X-A", "b"),),
                timeout=timedelta(seconds=90),
                connect_timeout=timedelta(milliseconds=500),
                workflow_id="w",
                version=3,
                user_id="u",
            ),
            "http",
            id="http, all fields",
        ),
        pytest.param(
            {"kind": "process", "command": ["x"], "cwd": None, "stdin": None},
            ProcessSettings(command=("x",)),
            "process",
            id="null is absent",
        ),
    ],
)
def test_what_is_right_is_read_stored_and_read_again(
    value: object, expected: LauncherSettings, kind: str
) -> None:
    settings = read_launcher(value)
    assert settings == expected
    assert launcher_kind_of(settings) == kind
    assert settings_of(launcher_text_of(settings)) == settings
    assert read_launcher(settings.to_dict()) == settings


def process(**fields: object) -> dict[str, object]:
    return {"kind": "process", "command": ["true"], **fields}


def http(**fields: object) -> dict[str, object]:
    return {"kind": "http", "url": URL, **fields}


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        pytest.param(None, "launcher", "must be an object", id="nothing"),
        pytest.param(["process"], "launcher", "must be an object", id="a list"),
        pytest.param({}, "launcher.kind", "is missing", id="no kind"),
        pytest.param({"kind": "proces"}, "launcher.kind", "did you mean process?", id="misspelt kind"),
        pytest.param({"kind": ["http"]}, "launcher.kind", "unknown kind", id="kind is a list"),
        pytest.param({"kind": "process"}, "launcher.command", "is missing", id="no command"),
        pytest.param({"kind": "http"}, "launcher.url", "is missing", id="no url"),
        pytest.param(
            {"kind": "callback", "command": "x"}, "launcher.command", "unknown field", id="foreign field"
        ),
        pytest.param(process(commnd="x"), "launcher.commnd", "did you mean command?", id="misspelt field"),
        pytest.param(process(command=[]), "launcher.command", "must be a list of words", id="no words"),
        pytest.param(process(command=5), "launcher.command", "must be a list of words", id="number"),
        pytest.param(
            process(command=["a", 5]), "launcher.command", "must be a string", id="a word is a number"
        ),
        pytest.param(process(command=["  "]), "launcher.command", "must not be empty", id="empty word"),
        pytest.param(process(command=""), "launcher.command", "must not be empty", id="empty text"),
        pytest.param(process(command=["a\0b"]), "launcher.command", "NUL", id="NUL"),
        pytest.param(process(command=["\ud800"]), "launcher.command", "valid Unicode", id="half a character"),
        pytest.param(process(env=["A=1"]), "launcher.env", "an object of strings", id="env is a list"),
        pytest.param(process(env={"A": 1}), "launcher.env", "must be a string", id="env has numbers"),
        pytest.param(
            process(env={"A=B": "1"}),
            "launcher.env",
            "not the name of an environment variable",
            id="= in a name",
        ),
        pytest.param(
            process(env={"": "1"}), "launcher.env", "not the name of an environment variable", id="empty name"
        ),
        pytest.param(
            process(env={"KRON_ATTEMPT": "1"}), "launcher.env", "only Kron sets", id="our own variable"
        ),
        pytest.param(process(cwd=5), "launcher.cwd", "must be a string", id="cwd is a number"),
        pytest.param(process(max_output=1), "launcher.max_output", "outside 1024-", id="too little output"),
        pytest.param(process(max_output=1e9), "launcher.max_output", "whole number", id="output is a float"),
        pytest.param(process(max_output=10**9), "launcher.max_output", "outside 1024-", id="too much output"),
        pytest.param(
            process(survive="yes"), "launcher.survive", "must be true or false", id="survive is a text"
        ),
        pytest.param(process(stdin={1, 2}), "launcher.stdin", "must be a JSON document", id="no JSON"),
        pytest.param(
            process(stdin=float("nan")), "launcher.stdin", "must be a JSON document", id="not a number"
        ),
        pytest.param(process(stdin="x" * MAX_TEXT), "launcher", "at most 65536", id="too large"),
        pytest.param(http(url=5), "launcher.url", "must be an address", id="url is a number"),
        pytest.param(http(url="example.com"), "launcher.url", "must be an address", id="no scheme"),
        pytest.param(
            http(url="ftp://example.com"), "launcher.url", "must be an address", id="another scheme"
        ),
        pytest.param(http(url="http://"), "launcher.url", "must be an address", id="no host"),
        pytest.param(http(url="http://a:99999/"), "launcher.url", "must be an address", id="no such port"),
        pytest.param(http(url="http://[::1/"), "launcher.url", "must be an address", id="half a host"),
        pytest.param(http(url="http://a/b c"), "launcher.url", "without spaces", id="space"),
        pytest.param(http(url="http://a/\nb"), "launcher.url", "printable ASCII", id="line break"),
        pytest.param(http(url="http://a/ü"), "launcher.url", "printable ASCII", id="not ASCII"),
        pytest.param(http(url="http://a/#b"), "launcher.url", "fragment", id="fragment"),
        pytest.param(
            http(headers={"A": "b\r\nC: d"}), "launcher.headers", "printable", id="header injection"
        ),
        pytest.param(
            http(headers={"A b": "c"}), "launcher.headers", "not the name of a header", id="space in a header"
        ),
        pytest.param(http(headers={"A": "b", "a": "c"}), "launcher.headers", "twice", id="header twice"),
        pytest.param(
            http(headers={"idempotency-KEY": "x"}), "launcher.headers", "set by Kron", id="our own header"
        ),
        pytest.param(http(headers={"Host": "x"}), "launcher.headers", "set by Kron", id="host"),
        pytest.param(http(timeout="0s"), "launcher.timeout", "between 10ms and 1h", id="no time"),
        pytest.param(http(timeout="2h"), "launcher.timeout", "between 10ms and 1h", id="too much time"),
        pytest.param(http(connect_timeout="x"), "launcher.connect_timeout", "write 90s", id="no duration"),
        pytest.param(http(reports=1), "launcher.reports", "must be true or false", id="reports is a number"),
        pytest.param(http(version="3"), "launcher.version", "must be a whole number", id="version is a text"),
        pytest.param(http(user_id=5), "launcher.user_id", "must be a string", id="user is a number"),
    ],
)
def test_what_is_wrong_is_named_with_its_path(value: object, path: str, reason: str) -> None:
    with pytest.raises(InvalidLauncherError) as raised:
        read_launcher(value)
    (problem,) = raised.value.problems
    assert problem.path == path
    assert reason in problem.reason
    assert isinstance(raised.value, InputError)
    assert raised.value.lines() == [str(problem)]


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(InvalidLauncherError) as raised:
        read_launcher({"kind": "http", "timeout": -1, "x": 1}, path="schedules[3].launcher")
    assert [problem.path for problem in raised.value.problems] == [
        "schedules[3].launcher.x",
        "schedules[3].launcher.url",
        "schedules[3].launcher.timeout",
    ]
    assert raised.value.code == "invalid_launcher"


DEFAULTS = [
    pytest.param(
        {"kind": "process", "command": ["/bin/true"], "cwd": "/"},
        {"max_output": 2_048, "survive": True},
        [{"cwd": "/tmp"}, {"env": {"A": "b"}}, {"stdin": "rm"}, {"command": ["/bin/true", "x"]}, {"nice": 1}],
        id="process",
    ),
    pytest.param(
        {"kind": "http", "url": "http://10.0.0.7/"},
        {"timeout": "1s", "headers": {"A": "b"}},
        [{"url": "http://10.0.0.8/"}],
        id="http",
    ),
    pytest.param(
        {"kind": "celery", "task": "tasks.a"},
        {"await_result": True},
        [{"task": "tasks.b"}, {"queue": "b"}, {"args": [1]}, {"kwargs": {"a": 1}}],
        id="celery",
    ),
    pytest.param(
        {"kind": "kubernetes", "namespace": "jobs", "template": {"spec": {}}},
        {"name": "a"},
        [{"namespace": "b"}, {"template": {"spec": {"parallelism": 9}}}, {"owner": {"uid": "a"}}],
        id="kubernetes",
    ),
]


@pytest.mark.parametrize(("default", "near", "others"), DEFAULTS)
def test_what_the_default_launcher_does_is_allowed_whatever_its_other_fields(
    default: dict[str, object], near: dict[str, object], others: list[dict[str, object]]
) -> None:
    options = (
        ProcessOptions(allowed_commands=frozenset()),
        HttpOptions(egress=egress_policy_of(None)),
        CeleryOptions(allowed_tasks=frozenset()),
        KubernetesOptions(allowed_namespaces=frozenset()),
    )
    config = LauncherConfig(options, read_launcher(default))
    assert (
        read_launcher(default).problems(config) == read_launcher({**default, **near}).problems(config) == []
    )
    # As another schedule's default, of another kind, it allows nothing.
    assert read_launcher(default).problems(LauncherConfig(options, read_launcher({"kind": "log"})))
    for other in others:
        assert read_launcher({**default, **other}).problems(config), other


@pytest.mark.parametrize("url", ["http://ann:hunter22@", "http//ann:hunter22@a/", "http://ann:hunter22@a/ b"])
def test_a_wrong_address_is_not_quoted(url: str) -> None:
    with pytest.raises(InvalidLauncherError) as raised:
        read_launcher(http(url=url))
    assert "hunter22" not in str(raised.value)
    assert "hunter22" not in repr(raised.value.details)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "null", "{}", '"process"'])
def test_stored_text_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidLauncherError):
        settings_of(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(
    [
        "command",
        "env",
        "cwd",
        "stdin",
        "max_output",
        "survive",
        "url",
        "headers",
        "timeout",
        "reports",
        "version",
    ]
)


@law(150)
@given(
    kind=st.sampled_from(["callback", "process", "http"]) | JSON,
    fields=st.dictionaries(NAMES, JSON | st.sampled_from([["true"], URL, {"A": "b"}]), max_size=5),
)
def test_whatever_is_given_is_read_or_refused(kind: object, fields: dict[str, object]) -> None:
    try:
        settings = read_launcher({"kind": kind, **fields})
    except InvalidLauncherError:
        return
    assert launcher_kind_of(settings).partition(":")[0] == kind
    assert settings_of(launcher_text_of(settings)) == settings
    assert json.loads(launcher_text_of(settings))["kind"] == kind


@pytest.mark.parametrize("workflow", [{"user_id": ""}, {"workflow_id": ""}, {"version": 10**30}])
def test_a_stored_object_with_a_workflow_that_is_refused_today_still_starts(
    workflow: dict[str, object],
) -> None:
    fields = {"kind": "http", "url": URL, "workflow_id": "wf", "version": 1, "user_id": "ann", **workflow}
    with pytest.raises(InvalidLauncherError):
        read_launcher(fields)
    settings = settings_of(json.dumps(fields))
    assert {name: settings.to_dict()[name] for name in workflow} == workflow
    assert settings_parser(HttpSettings)(json.dumps(fields)) == settings
