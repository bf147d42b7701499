"""`kron token`: keys and tokens are created and inspected."""

import io
import json
from pathlib import Path

import pytest

from kron.cli.main import BAD, GOOD, NO, run

SECRET = "a secret that is long enough to be one"


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert run(["token", "keys", str(tmp_path / "keys")]) == GOOD
    assert "keep it secret" in capsys.readouterr().out
    return tmp_path / "keys"


def made(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert run(["token", "make", "--user", "ann", "--scope", "read,write", *options]) == GOOD
    return capsys.readouterr().out.strip()


@pytest.mark.parametrize("algorithm", ["EdDSA", "ES256", "RS256"])
def test_a_token_made_with_a_new_key_is_accepted_by_its_public_half(
    algorithm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["token", "keys", str(tmp_path), "--algorithm", algorithm, "--json"]) == GOOD
    kid = json.loads(capsys.readouterr().out)["kid"]
    token = tmp_path / "token"
    token.write_text(made(capsys, "--key", str(tmp_path / "private.pem"), "--group", "team", "--ttl", "90s"))
    monkeypatch.setenv("KRON_JWT_KEYS", str(tmp_path / "jwks.json"))
    assert run(["token", "show", str(token), "--json"]) == GOOD
    shown = json.loads(capsys.readouterr().out)
    assert shown["accepted"]
    assert (shown["header"]["alg"], shown["header"]["kid"]) == (algorithm, kid)
    claims = shown["claims"]
    assert claims["exp"] - claims["iat"] == 90
    assert (claims["sub"], claims["scope"], claims["groups"], claims["aud"]) == (
        "ann", "read write", ["team"], "kron",
    )  # fmt: skip


def test_the_private_key_is_for_its_owner_alone_and_never_written_over(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    private = folder / "private.pem"
    assert private.stat().st_mode & 0o077 == 0
    before = private.read_text()
    assert run(["token", "keys", str(folder)]) == BAD
    assert "the file exists" in capsys.readouterr().err
    assert private.read_text() == before
    assert '"d"' not in (folder / "jwks.json").read_text()


def test_a_secret_from_a_file_signs_and_verifies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n")
    monkeypatch.setenv("KRON_JWT_SECRET_FILE", str(file))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(made(capsys).encode())))
    assert run(["token", "show"]) == GOOD
    assert capsys.readouterr().out.startswith("accepted\n")


def test_a_rejected_token_is_shown_with_the_reason(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    token = folder / "token"
    token.write_text(made(capsys, "--key", str(folder / "private.pem")))
    assert run(["token", "show", str(token)]) == NO
    assert "rejected: no verification key is configured" in capsys.readouterr().out
    monkeypatch.setenv("KRON_JWT_SECRET", SECRET)
    assert run(["token", "show", str(token)]) == NO
    assert "rejected: the token's signature" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["make", "--user", "ann", "--scope", "reed"], '"reed": use one of read, write, run, admin'),
        (["make", "--user", "ann", "--scope", "read"], "No signing key"),
        (["make", "--user", "ann", "--scope", "read", "--ttl", "0s"], "--ttl"),
        (["make", "--user", "ann", "--scope", "read", "--ttl", "10y"], 'Invalid --ttl "10y": write 90s'),
        (["make", "--user", "", "--scope", "read"], 'Invalid --user "": use 1 to 200 bytes'),
        (["make", "--user", "x" * 201, "--scope", "read"], "use 1 to 200 bytes"),
        (["make", "--user", "a", "--group", "b\nc", "--scope", "read"], "Invalid --group"),
        (["make", "--user", "ann", "--scope", "read", "--key", "nowhere.pem"], "nowhere.pem"),
        (
            ["make", "--user", "ann", "--scope", "read", "--key", __file__],
            'test_token.py": must be a private key',
        ),
        (["keys", "x", "--algorithm", "HS256"], '"HS256": use one of EdDSA'),
        (["show", "nowhere"], "nowhere"),
        (["show", __file__], "malformed"),
    ],
)
def test_an_error_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["token", *words]) == BAD
    said = capsys.readouterr()
    assert said.out == ""
    assert message in said.err
    assert said.err.count("\n") == 1


def test_no_secret_is_ever_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRON_JWT_SECRET", "hunter2")
    assert run(["token", "make", "--user", "ann", "--scope", "read"]) == BAD
    assert "hunter2" not in capsys.readouterr().err
    monkeypatch.setenv("KRON_JWT_SECRET", SECRET)
    assert run(["config", "--json"]) == GOOD
    assert SECRET not in capsys.readouterr().out


def test_the_group_alone_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["token"]) == GOOD
    assert "keys" in capsys.readouterr().out
