"""Signed requests: what was signed is recognised, and nothing else is."""

import hmac
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.clocks.system import SystemClock
from kron.core.errors import InputError
from kron.core.plan.report import RunEvent
from kron.launchers.http.launcher import TOLERANCE_S, HttpLauncher, is_signed, signed
from tests.launchers.http.test_launcher import QUICK, RESET, Server, a_request, result_of

SECRET = b"a secret both sides know"
NOW = 1_772_366_400


def test_a_signature_is_the_hmac_of_timestamp_and_body() -> None:
    digest = hmac.new(SECRET, b'1772366400.{"a": 1}', sha256).hexdigest()
    assert signed(SECRET, b'{"a": 1}', now=NOW) == {
        "Kron-Timestamp": "1772366400",
        "Kron-Signature": f"v1={digest}",
    }


@given(body=st.binary(), other=st.binary(), late=st.integers(-TOLERANCE_S, TOLERANCE_S))
def test_only_what_was_signed_is_recognised(body: bytes, other: bytes, late: int) -> None:
    headers = signed(SECRET, body, now=NOW)
    assert is_signed(SECRET, headers, body, now=NOW + late)
    assert is_signed(SECRET, headers, other, now=NOW) == (body == other)
    if other and not other.endswith(b"\0"):
        assert not is_signed(SECRET + other, headers, body, now=NOW)


@pytest.mark.parametrize("secret", [b"", b"\0", SECRET + b"\0", SECRET + b"x\0\0"])
def test_a_secret_that_is_the_same_key_as_a_shorter_one_is_refused(secret: bytes) -> None:
    """HMAC pads keys with NUL bytes."""
    with pytest.raises(InputError, match="NUL"):
        signed(secret, b"x", now=NOW)
    with pytest.raises(InputError, match="NUL"):
        is_signed(secret, signed(SECRET, b"x", now=NOW), b"x", now=NOW)


@pytest.mark.parametrize("late", [-TOLERANCE_S - 1, TOLERANCE_S + 1])
def test_what_is_old_or_from_the_future_is_not_recognised(late: int) -> None:
    assert not is_signed(SECRET, signed(SECRET, b"x", now=NOW), b"x", now=NOW + late)


GOOD = signed(SECRET, b"x", now=NOW)


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="none"),
        pytest.param({**GOOD, "Kron-Signature": ""}, id="empty"),
        pytest.param({**GOOD, "Kron-Signature": "v1="}, id="no digest"),
        pytest.param({**GOOD, "Kron-Signature": "é\ud800"}, id="odd signs"),
        pytest.param({**GOOD, "Kron-Signature": GOOD["Kron-Signature"][3:]}, id="no version"),
        pytest.param({**GOOD, "Kron-Timestamp": "1772366401"}, id="another time"),
        pytest.param({**GOOD, "Kron-Timestamp": "-1"}, id="before all time"),
        pytest.param({**GOOD, "Kron-Timestamp": "9" * 5_000}, id="a long number"),
        pytest.param({**GOOD, "Kron-Timestamp": "²"}, id="a digit of another kind"),
    ],
)
def test_whatever_else_is_sent_is_not_recognised(headers: dict[str, str]) -> None:
    assert not is_signed(SECRET, headers, b"x", now=NOW)


async def test_every_request_is_signed_also_when_it_is_sent_again() -> None:
    server = Server()
    await server.open()
    server.script = [RESET]
    launcher = HttpLauncher(SystemClock(), backoff=QUICK, secret=SECRET)
    assert (await result_of(launcher, a_request(server.url)))[0] is RunEvent.ACCEPTED
    await launcher.close()
    await server.close()
    assert len(server.asked) == 2
    now = int(SystemClock().now().timestamp())
    for asked in server.asked:
        assert is_signed(SECRET, asked.headers, asked.body, now=now)
        assert not is_signed(b"another secret", asked.headers, asked.body, now=now)


async def test_without_a_secret_nothing_is_signed() -> None:
    server = Server()
    await server.open()
    launcher = HttpLauncher(SystemClock(), backoff=QUICK)
    await result_of(launcher, a_request(server.url))
    await launcher.close()
    await server.close()
    assert not [name for name in server.asked[0].headers if name in ("kron-signature", "kron-timestamp")]
