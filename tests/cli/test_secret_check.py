"""No command accepts a secret on the command line, which other users of the machine can read."""

from collections.abc import Iterator

import pytest
from typer.main import get_command

from kron.cli.app import build
from kron.cli.main import BAD, run
from kron.cli.support.secret_check import SecretOnCommandLineError, check_words

PASSWORD = "hunter2x"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.aHVudGVyMng"
SECRETS = {
    "a login": f"postgresql://kron:{PASSWORD}@127.0.0.1:1/kron",
    "a parameter": f"postgresql://kron@127.0.0.1:1/kron?sslmode=disable&password={PASSWORD}",
    "a server": f"http://ann:{PASSWORD}@127.0.0.1:1",
    "a token": JWT,
}


def _commands(command: object, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list[object]]]:
    """Yield every command of the tree with its parameters."""
    below = getattr(command, "commands", None)
    if below is None:
        yield words, list(getattr(command, "params", []))
        return
    for name, each in below.items():
        yield from _commands(each, (*words, name))


def _places() -> Iterator[tuple[str, ...]]:
    """Yield the words before a value, for each option that has one and for an argument."""
    for words, parameters in _commands(get_command(build())):
        yield words
        for parameter in parameters:
            names = getattr(parameter, "opts", [])
            if getattr(parameter, "param_type_name", "") == "option" and not getattr(
                parameter, "is_flag", False
            ):
                yield (*words, max(names, key=len))


PLACES = list(_places())


def test_the_tree_was_walked() -> None:
    asked = {words[0] for words in PLACES}
    assert asked >= {"serve", "worker", "migrate", "status", "schedules", "runs", "audit", "token", "next"}
    assert sum(words[-1] == "--store" for words in PLACES) >= 15
    assert sum(words[-1] == "--server" for words in PLACES) >= 13


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_a_secret_is_rejected_in_every_place_and_never_repeated(
    secret: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ways = [[*words, secret] for words in PLACES]
    ways += [[*words[:-1], f"{words[-1]}={secret}"] for words in PLACES if words[-1].startswith("--")]
    for way in ways:
        assert run(way) == BAD, way
        said = capsys.readouterr()
        assert said.out == "", way
        assert "contains a secret" in said.err, way
        assert "KRON_" in said.err or "a file" in said.err, way
        assert PASSWORD not in said.err
        assert JWT not in said.err


@pytest.mark.parametrize(
    ("words", "named", "remedy"),
    [
        pytest.param(["serve", "--store", SECRETS["a login"]], "--store", "KRON_STORE", id="a store"),
        pytest.param(["worker", f"--store={SECRETS['a parameter']}"], "--store", "PGPASSWORD", id="joined"),
        pytest.param(["migrate", SECRETS["a login"]], "an argument", "KRON_STORE_FILE", id="an argument"),
        pytest.param(
            ["runs", "list", "--server", SECRETS["a server"]], "--server", "KRON_TOKEN", id="a server"
        ),
        pytest.param(
            ["schedules", "upsert", "--url", SECRETS["a server"]], "--url", "a file", id="an executor"
        ),
        pytest.param(["nonsense", SECRETS["a login"]], "an argument", "KRON_STORE", id="no command at all"),
    ],
)
def test_the_error_suggests_an_alternative(words: list[str], named: str, remedy: str) -> None:
    with pytest.raises(SecretOnCommandLineError) as refused:
        check_words(words)
    assert refused.value.details["place"] == named
    assert remedy in str(refused.value)


@pytest.mark.parametrize(
    "word",
    [
        f"postgresql://u:{PASSWORD}@h/db",
        f"postgresql://:{PASSWORD}@h/db",
        "postgresql://u:12345@h/db",
        "postgresql://u:a/b@h/db",
        "postgresql://u:a@b@h/db",
        "postgresql://u:a#b?c@h/db",
        "postgresql://u:a'b@h/db",
        f"postgresql://u:{PASSWORD}@[::1]:5432/db",
        f"postgresql://h/db?pass%77ord={PASSWORD}",
        f"postgresql://h/db?PASSWORD={PASSWORD}",
        f"postgresql://h/db?sslpassword={PASSWORD}",
        f'--set=launcher={{"kind":"http","url":"https://u:{PASSWORD}@h/"}}',
        "kron-run.0123456789abcdefXYZ_-",
    ],
)
def test_secrets_are_recognised(word: str) -> None:
    with pytest.raises(SecretOnCommandLineError):
        check_words(["status", word])


@pytest.mark.parametrize(
    "word",
    [
        "postgresql://kron@db.example/kron",
        "postgresql://kron@db.example:5432/kron?passfile=/run/pgpass",
        "postgresql://postgres:@/postgres?host=/tmp/a@b",
        "sqlite:///a:b@c.db",
        "sqlite:////var/lib/kron.db",
        "http://127.0.0.1:8080",
        "http://[::1]:8080/x@y",
        "http://h:8080/x:y@z",
        "http://h/?password=",
        'launcher={"kind":"http","url":"http://h:8080","note":"a@b"}',
        "30 8 * * mon-fri",
        "ann@example.com",
        "eyJ.txt",
    ],
)
def test_nothing_else_is_taken_for_a_secret(word: str) -> None:
    check_words(["status", word, f"--store={word}"])
