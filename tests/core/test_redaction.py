"""Secrets in URLs, options and outputs: what is hidden, and what may be shown."""

from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.redaction import (
    hide_run_token,
    percent_decoded,
    redact_passwords,
    redact_url,
    replace_secrets,
    secrets_in_options,
    secrets_in_url,
)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        pytest.param("http://h/p", "http://h/p", id="nothing"),
        pytest.param("http://ann:pw@h:80/p?q=1", "http://h:80/p?***", id="login and query"),
        pytest.param("http://h/@me?mail=a@b", "http://h/@me?***", id="an @ in path and query"),
        pytest.param("http://h:80/@me", "http://h:80/@me", id="a port and an @"),
        pytest.param("http://[::1]:80/a@b", "http://[::1]:80/a@b", id="an IPv6 address"),
        pytest.param("http://ann:pa/ss@h/p", "http://h/p", id="a slash in the password"),
        pytest.param("http://ann:p;w@h/p;v=1", "http://h/p;v=1", id="semicolons"),
        pytest.param("http://ann@h", "http://h", id="only a user"),
        pytest.param("http://@h", "http://h", id="an empty login"),
        pytest.param("no URL", "no URL", id="no URL"),
    ],
)
def test_a_url_is_shown_without_login_and_query(url: str, expected: str) -> None:
    assert redact_url(url) == expected
    assert redact_url(expected) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        pytest.param("postgresql://ann:pw@db/kron", "postgresql://ann:***@db/kron", id="a login"),
        pytest.param("postgresql://ann:1/p@w@db/k", "postgresql://ann:***@db/k", id="not encoded"),
        pytest.param("postgresql://db/k?a=1&Password=x", "postgresql://db/k?a=1&Password=***", id="it"),
        pytest.param("sqlite:///kron.db", "sqlite:///kron.db", id="a file"),
    ],
)
def test_only_the_passwords_of_a_store_are_hidden(url: str, expected: str) -> None:
    assert redact_passwords(url) == expected


@given(st.text(st.characters(categories=("L", "N", "P", "S")), min_size=4))
def test_a_password_is_found_as_it_is_written_and_as_it_is_meant(password: str) -> None:
    written = quote(password, safe="")
    found = secrets_in_url(f"amqp://ann:{written}@h:1/?timeout=5000&ssl_key_password={written}")
    assert set(found) == {password, written}
    hidden = replace_secrets(f"<{password}> <{written}>", found)
    assert hidden == "<***> <***>"


@given(st.text(st.characters(codec="utf-8")))
def test_percent_escapes_are_decoded_as_everywhere(text: str) -> None:
    assert percent_decoded(text) == unquote(text)
    assert percent_decoded(quote(text, safe="")) == text


def test_files_are_no_secrets_and_every_parameter_is_one_where_asked() -> None:
    url = "postgresql://db/k?sslkey=/etc/key.pem&passfile=/etc/pass&application=kron+app&sslpassword=p+w"
    assert secrets_in_url(url) == ["p+w", "p w"]
    every = secrets_in_url(url, every_parameter=True)
    assert {"/etc/key.pem", "/etc/pass", "kron app", "p w"} <= set(every)


def test_nested_options_are_searched_by_name() -> None:
    options = {"a": "x", "b": [{"password": "p"}], "token": ["t", {"c": "d"}], "n": {"api_key": "k", "m": 5}}
    assert list(secrets_in_options(options)) == ["p", "t", "k"]


def test_the_end_of_a_token_is_hidden_where_an_output_was_cut() -> None:
    token = "kron-run.0123456789abcdef"
    assert hide_run_token(b"a kron-run.0123456789abcdef b", token) == b"a *** b"
    assert hide_run_token(b"89abcdef b", token) == b"*** b"
    assert hide_run_token(b"9abcdef b", token) == b"9abcdef b"
