"""Tokens: valid ones, and every kind of invalid one."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import RSAAlgorithm

from kron.core.job.job import schedule_prefix
from kron.fronts.service.auth.key import InvalidKeysError, Key, keys_of, secret_key
from kron.fronts.service.auth.keyring import FRESH_S, SOON_S, STALE_S, Keyring
from kron.fronts.service.auth.principal import Caller, TokenScope, UnauthenticatedError
from kron.fronts.service.auth.token import MAX_TOKEN, TokenReader, TokenRules, make_token, verified
from kron.fronts.service.security import token_reader_of as wired_reader
from kron.fronts.service.settings import Settings
from kron.launchers.run_token import is_run_token_of, run_token_of
from kron.testing import SimulatedClock
from tests.service.auth import forge

AT = int(forge.NOW.timestamp())
RULES = TokenRules(audience=forge.AUDIENCE, issuer=forge.ISSUER)
ALGORITHMS = ("RS256", "ES256", "EdDSA")


def reader_of(clock: SimulatedClock, keyring: Keyring | None = None) -> TokenReader:
    known = keys_of(forge.jwks(*map(forge.jwk, ALGORITHMS)), source="test")
    return TokenReader(keyring or Keyring(clock, fixed=(secret_key(forge.SECRET), *known)), RULES, clock)


@pytest.mark.parametrize("algorithm", ["HS256", *ALGORITHMS])
async def test_a_valid_token_identifies_the_caller(algorithm: str) -> None:
    caller = await reader_of(SimulatedClock(forge.NOW)).caller_of(forge.token(algorithm, groups=["team"]))
    assert caller == Caller(
        "ann", frozenset({TokenScope.READ, TokenScope.WRITE, TokenScope.RUN}), ("ann", "team")
    )


@pytest.mark.parametrize(
    "scope", ["read erase  run", ["read", "erase", "run"], ["read", 1, None, ["run"], "run"]]
)
async def test_unknown_scopes_are_ignored(scope: object) -> None:
    caller = await reader_of(SimulatedClock(forge.NOW)).caller_of(forge.token(scope=scope))
    assert caller.scopes == {TokenScope.READ, TokenScope.RUN}
    assert caller.may(TokenScope.RUN)
    assert not caller.may(TokenScope.WRITE)


async def test_an_admin_sees_the_schedules_of_every_tenant() -> None:
    caller = await reader_of(SimulatedClock(forge.NOW)).caller_of(forge.token(scope="admin"))
    assert caller.users is None
    assert all(caller.may(right) for right in TokenScope)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(forge.token(exp=AT - 60), "expired", id="expired, the skew is over"),
        pytest.param(forge.token(exp=None), 'has no "exp"', id="no end"),
        pytest.param(forge.token(exp="never"), "not a time", id="an end that is no time"),
        pytest.param(forge.token(exp=True), "not a time", id="a truth value as end"),
        pytest.param(forge.token(nbf=AT + 61), "not valid yet", id="not yet"),
        pytest.param(forge.token(iat=AT + 61), "not valid yet", id="made in the future"),
        pytest.param(forge.token(aud="other"), "for another audience", id="wrong audience"),
        pytest.param(forge.token(aud="kronos"), "for another audience", id="an audience that starts like it"),
        pytest.param(forge.token(aud=["kronos"]), "for another audience", id="a list of such"),
        pytest.param(forge.token(aud=None), "for another audience", id="no audience"),
        pytest.param(forge.token(iss="https://evil.test"), "from another issuer", id="wrong issuer"),
        pytest.param(forge.token(iss=None), "from another issuer", id="no issuer"),
        pytest.param(forge.token(sub=None), "must be names of 1 to 200 bytes", id="nobody"),
        pytest.param(forge.token(sub=""), "must be names of 1 to 200 bytes", id="an empty name"),
        pytest.param(forge.token(sub="x" * 201), "must be names of 1 to 200 bytes", id="a name too long"),
        pytest.param(forge.token(nbf=10**400), "not valid yet", id="a time beyond all numbers"),
        pytest.param(forge.token(groups="team"), "groups", id="groups that are no list"),
        pytest.param(forge.token(groups=["x"] * 33), "groups", id="too many groups"),
        pytest.param(forge.token("EdDSA", 1), "signature", id="a key nobody knows"),
        pytest.param(forge.forged({"alg": "none"}), "algorithm", id="no algorithm"),
        pytest.param(forge.forged({"alg": "None"}), "algorithm", id="no algorithm, in other letters"),
        pytest.param(forge.forged({"alg": "HS512"}, forge.SECRET.encode()), "algorithm", id="HS512"),
        pytest.param(
            forge.forged({"alg": "HS256", "kid": "RS256-0"}, forge.public_pem("RS256")),
            "signature",
            id="the public key as secret",
        ),
        pytest.param(
            forge.forged({"alg": "RS256", "kid": "RS256-0"}, forge.SECRET.encode()),
            "signature",
            id="RS256 by HMAC",
        ),
        pytest.param(
            forge.forged({"alg": "HS256", "crit": ["exp"]}, forge.SECRET.encode()), "malformed", id="crit"
        ),
        pytest.param(forge.token()[:-2], "malformed|signature", id="truncated signature"),
        pytest.param(forge.token().rsplit(".", 1)[0], "malformed", id="no signature"),
        pytest.param("a.b.c", "malformed", id="no JSON"),
        pytest.param("", "malformed", id="nothing"),
        pytest.param("x" * (MAX_TOKEN + 1), "longer", id="too long"),
    ],
)  # fmt: skip
async def test_a_token_that_is_wrong_is_refused(text: str, reason: str) -> None:
    with pytest.raises(UnauthenticatedError, match=reason):
        await reader_of(SimulatedClock(forge.NOW)).caller_of(text)


@pytest.mark.parametrize(
    "further",
    [
        {"exp": AT - 59},
        {"exp": 10**400},
        {"nbf": AT + 60},
        {"iat": AT + 60},
        {"aud": ["other", "kron"]},
        {"scope": None},
    ],
)
async def test_a_token_within_the_skew_is_valid(further: dict[str, object]) -> None:
    caller = await reader_of(SimulatedClock(forge.NOW)).caller_of(forge.token(**further))
    assert caller.name == "ann"


@given(at=st.integers(0, len(forge.token()) - 1), sign=st.sampled_from("ABCxyz019-_."))
async def test_a_changed_token_is_refused(at: int, sign: str) -> None:
    good = forge.token()
    changed = good[:at] + sign + good[at + 1 :]
    reader = reader_of(SimulatedClock(forge.NOW))
    if changed == good or _same_signature(good, changed):
        return
    with pytest.raises(UnauthenticatedError):
        await reader.caller_of(changed)


def _same_signature(one: str, other: str) -> bool:
    """The last sign of base64 carries bits that mean nothing."""
    return one[:-1] == other[:-1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[]", "needs a list"),
        ('{"keys": {}}', "needs a list"),
        ('{"keys": []}', "no key"),
        ('{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "no key"),
        ('{"keys": [{"kty": "RSA", "n": "AQAB", "e": "!"}]}', "malformed"),
        (forge.jwks(forge.jwk("RS256", use="enc")), "no key"),
        (forge.jwks(forge.jwk("RS256", alg="RS512")), "no key"),
        (forge.jwks(forge.jwk("EdDSA", d="c2VjcmV0")), "private key"),
    ],
)
def test_keys_that_cannot_be_used_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidKeysError, match=reason):
        keys_of(text, source="test")


def test_an_rsa_key_that_is_too_short_is_refused() -> None:
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024).public_key()
    with pytest.raises(InvalidKeysError, match="2048 bits"):
        keys_of(forge.jwks(json.loads(RSAAlgorithm.to_jwk(weak))), source="test")


def test_a_short_secret_is_refused_and_not_shown() -> None:
    with pytest.raises(InvalidKeysError, match="32 bytes") as refusal:
        secret_key("hunter2")
    assert "hunter2" not in str(refusal.value)


async def test_a_key_is_looked_for_by_its_algorithm_and_tried_with_no_other() -> None:
    """Each alone would do: a key is not found for another algorithm, and not used for one if it were."""
    clock = SimulatedClock(forge.NOW)
    known = keys_of(forge.jwks(*map(forge.jwk, ALGORITHMS)), source="test")
    keyring = Keyring(clock, fixed=(secret_key(forge.SECRET), *known))
    for algorithm in ("HS256", *ALGORITHMS):
        assert [key.algorithm for key in await keyring.find(None, algorithm)] == [algorithm]
    confused = Key(None, "RS256", b"x" * 32)
    with pytest.raises(UnauthenticatedError, match="signature"):
        verified(forge.forged({"alg": "HS256"}, b"x" * 32), [confused])
    assert verified(forge.forged({"alg": "HS256"}, b"x" * 32), [confused._replace(algorithm="HS256")])


async def test_a_token_that_names_no_key_is_tried_with_all_of_its_algorithm() -> None:
    nameless = make_token(forge.claims(), forge.pem("EdDSA"), "EdDSA")
    assert (await reader_of(SimulatedClock(forge.NOW)).caller_of(nameless)).name == "ann"


@pytest.mark.parametrize(
    ("settings", "is_good"),
    [
        pytest.param({}, True, id="the usual skew"),
        pytest.param({"jwt_skew_s": 5}, False, id="a short skew"),
        pytest.param({"jwt_skew_s": 6}, True, id="just long enough"),
        pytest.param({"jwt_audience": "other"}, False, id="another audience"),
        pytest.param({"jwt_issuer": "https://other.test"}, False, id="another issuer"),
        pytest.param({"jwt_issuer": forge.ISSUER}, True, id="the issuer"),
    ],
)
async def test_tokens_are_read_by_the_rules_of_the_settings(
    settings: dict[str, object], is_good: bool
) -> None:
    reader = wired_reader(Settings(jwt_secret=forge.SECRET, **settings), SimulatedClock(forge.NOW))  # type: ignore[arg-type]
    assert reader is not None
    refusal = nullcontext() if is_good else pytest.raises(UnauthenticatedError)
    with refusal:
        await reader.caller_of(forge.token(exp=AT - 5))


def publish(path: Path, number: int) -> None:
    path.write_text(forge.jwks(forge.jwk("EdDSA", number)))


def withdraw(path: Path) -> None:
    path.unlink()


def test_a_password_in_the_url_of_keys_is_not_in_errors() -> None:
    password = "hunter2x"
    with pytest.raises(InvalidKeysError) as refusal:
        Keyring(SimulatedClock(forge.NOW), source=f"http://kron:{password}@issuer.test/keys")
    assert password not in f"{refusal.value} {refusal.value.details}"


class TestRotation:
    """Keys change while the service runs."""

    @pytest.fixture
    def clock(self) -> SimulatedClock:
        return SimulatedClock(forge.NOW)

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "keys.json"
        publish(path, 0)
        return path

    async def test_a_new_key_is_found_when_it_is_used(self, clock: SimulatedClock, file: Path) -> None:
        reader = reader_of(clock, Keyring(clock, source=str(file)))
        assert (await reader.caller_of(forge.token("EdDSA", 0))).name == "ann"
        publish(file, 1)
        with pytest.raises(UnauthenticatedError):
            await reader.caller_of(forge.token("EdDSA", 1))
        await clock.advance_to(clock.now() + timedelta(seconds=SOON_S))
        assert (await reader.caller_of(forge.token("EdDSA", 1))).name == "ann"

    async def test_a_revoked_key_counts_no_longer(self, clock: SimulatedClock, file: Path) -> None:
        reader = reader_of(clock, Keyring(clock, source=str(file)))
        await reader.caller_of(forge.token("EdDSA", 0))
        publish(file, 1)
        await clock.advance_to(clock.now() + timedelta(seconds=FRESH_S))
        with pytest.raises(UnauthenticatedError, match="signature"):
            await reader.caller_of(forge.token("EdDSA", 0))

    async def test_keys_that_cannot_be_read_again_count_a_while(
        self, clock: SimulatedClock, file: Path
    ) -> None:
        reader = reader_of(clock, Keyring(clock, source=str(file)))
        late = {"exp": AT + 10 * STALE_S}
        await reader.caller_of(forge.token("EdDSA", 0, **late))
        withdraw(file)
        await clock.advance_to(clock.now() + timedelta(seconds=STALE_S))
        assert (await reader.caller_of(forge.token("EdDSA", 0, **late))).name == "ann"
        await clock.advance_to(clock.now() + timedelta(seconds=FRESH_S))
        with pytest.raises(UnauthenticatedError, match="signature"):
            await reader.caller_of(forge.token("EdDSA", 0, **late))

    async def test_unknown_names_do_not_make_it_read_again_and_again(
        self, clock: SimulatedClock, file: Path
    ) -> None:
        keyring = Keyring(clock, source=str(file))
        await keyring.load()
        withdraw(file)
        for _ in range(3):
            assert await keyring.find("unknown", "EdDSA") == []
        assert await keyring.find("EdDSA-0", "EdDSA") != []

    async def test_requests_that_miss_a_key_at_once_read_it_once(self, clock: SimulatedClock) -> None:
        text, asked = forge.jwks(forge.jwk("EdDSA")).encode(), list[bytes]()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            keyring = Keyring(clock, source=f"http://127.0.0.1:{port}/keys")
            found = await asyncio.gather(*(keyring.find(None, "EdDSA") for _ in range(5)))
        assert [len(keys) for keys in found] == [1] * 5
        assert len(asked) == 1

    async def test_keys_that_are_missing_at_startup_are_an_error(self, clock: SimulatedClock) -> None:
        with pytest.raises(InvalidKeysError, match="No such file"):
            await Keyring(clock, source="nowhere.json").load()

    def test_keys_come_over_https_only(self, clock: SimulatedClock) -> None:
        with pytest.raises(InvalidKeysError, match="https"):
            Keyring(clock, source="http://issuer.test/keys")


def test_a_run_token_is_valid_for_its_run_only() -> None:
    secret = b"s" * 32
    token = run_token_of(secret, "a" * 64)
    assert is_run_token_of(token, secret, "a" * 64)
    assert not is_run_token_of(token, secret, "b" * 64)
    assert not is_run_token_of(token, b"t" * 32, "a" * 64)
    assert not is_run_token_of("kron-run.\u00e4", secret, "a" * 64)


@given(one=st.text(min_size=1), other=st.text(min_size=1))
def test_no_users_prefix_is_the_start_of_another_users(one: str, other: str) -> None:
    if one != other:
        assert not schedule_prefix(one).startswith(schedule_prefix(other))


class Issuer:
    """Answers with keys, or with any other response."""

    def __init__(self) -> None:
        self.answer, self.status, self.asked = b"", 200, 0
        self.url = ""


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    found = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked += 1
            self.send_response(found.status)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", str(len(found.answer)))
            self.end_headers()
            with suppress(ConnectionError):
                self.wfile.write(found.answer)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_address[1]}/keys"
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()


async def test_keys_come_from_an_address_and_are_kept_for_a_while(issuer: Issuer) -> None:
    clock = SimulatedClock(forge.NOW)
    issuer.answer = forge.jwks(forge.jwk("EdDSA", 0)).encode()
    reader = reader_of(clock, Keyring(clock, source=issuer.url))
    for _ in range(5):
        await reader.caller_of(forge.token("EdDSA", 0))
    assert issuer.asked == 1
    issuer.answer = forge.jwks(forge.jwk("EdDSA", 1)).encode()
    await clock.advance_to(clock.now() + timedelta(seconds=SOON_S))
    assert (await reader.caller_of(forge.token("EdDSA", 1))).name == "ann"
    assert issuer.asked == 2


@pytest.mark.parametrize(
    ("status", "answer", "reason"),
    [
        (500, b"", "answered 500"),
        (302, b"", "answered 302"),
        (200, b"x" * 300_000, "larger"),
        (200, b"{", "JSON"),
    ],
)
async def test_an_address_that_gives_no_keys_is_refused(
    status: int, answer: bytes, reason: str, issuer: Issuer
) -> None:
    issuer.status, issuer.answer = status, answer
    with pytest.raises(InvalidKeysError, match=reason):
        await Keyring(SimulatedClock(forge.NOW), source=issuer.url).load()


async def test_an_address_that_dribbles_is_given_up() -> None:
    ended = asyncio.Event()

    async def dribble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        with suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.01)
        writer.close()
        ended.set()

    async with await asyncio.start_server(dribble, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        ring = Keyring(SimulatedClock(forge.NOW), source=f"http://127.0.0.1:{port}/keys", timeout_s=0.1)
        with pytest.raises(InvalidKeysError, match="longer than"):
            await ring.load()
        await ended.wait()
