"""The sentry: every request passes it before anything of it is read, and goes on in its caller's name."""

from collections.abc import Callable
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as ASGIScope

from kron.core.errors import KronError
from kron.core.redaction import RUN_TOKEN_PREFIX
from kron.fronts.service.api import problem
from kron.fronts.service.api.middleware import name_of
from kron.fronts.service.auth.permissions import Need, find
from kron.fronts.service.auth.principal import (
    ANYBODY,
    NOBODY,
    Caller,
    ForbiddenError,
    TokenScope,
    UnknownCallerError,
    calling,
)
from kron.fronts.service.auth.tls import PEER
from kron.fronts.service.auth.token import TokenReader
from kron.launchers.run_token import is_run_token_of

ErrorResponder = Callable[[Request, Exception], Response]
COOKIE = "kron_token"
# What becomes of the token of a run: who it speaks for may do nothing but report.
EXECUTOR = Caller("executor", frozenset({TokenScope.RUN}), None)


class Authenticator:
    """Finds out who calls: by a token, by a certificate, or not at all where nobody has to say."""

    def __init__(
        self,
        reader: TokenReader | None,
        *,
        subjects: Callable[[str], Caller | None] = lambda _: None,
        run_secret: bytes | None = None,
        is_open: bool = False,
    ) -> None:
        self._reader = reader
        self._subjects = subjects
        self._run_secret = run_secret
        self.is_open = is_open

    async def begin(self) -> None:
        """Read the keys of tokens, and raise if that can never work."""
        if self._reader is not None:
            await self._reader.keyring.begin()

    async def caller_of(self, scope: ASGIScope, need: Need) -> Caller:
        """Return who makes a request, or raise."""
        if self.is_open:
            return ANYBODY
        if need.right is None:
            return NOBODY
        token = _bearer_of(scope) or (_cookie_of(scope) if need.page else None)
        if token is not None and need.run_token and token.startswith(RUN_TOKEN_PREFIX):
            return self._executor(token, scope)
        return self._peer(scope) if token is None else await self.caller_with(token)

    async def caller_with(self, token: str) -> Caller:
        """Return who a token speaks for, or raise."""
        if self._reader is None:
            raise UnknownCallerError("tokens are not accepted here")
        return await self._reader.caller_of(token)

    def _executor(self, token: str, scope: ASGIScope) -> Caller:
        key = name_of(scope["path"].split("/")[2])
        if self._run_secret is None or not is_run_token_of(token, self._run_secret, key):
            raise UnknownCallerError("the token is not of this run")
        # Each run is a caller of its own, so that no others can use up what it may ask.
        return EXECUTOR._replace(name=f"run {key}")

    def _peer(self, scope: ASGIScope) -> Caller:
        subject = scope.get(PEER)
        caller = self._subjects(subject) if isinstance(subject, str) else None
        if caller is not None:
            return caller
        if isinstance(subject, str):
            raise UnknownCallerError(f"nobody is listed in client_subjects for the certificate of {subject}")
        raise UnknownCallerError("a token is missing: send it as `Authorization: Bearer ...`")


class AuthMiddleware:
    """Wraps the API: who calls, whether they may, and how often; then their request goes on.

    What is not in the table of routes is answered here, so that nothing unguarded can be reached.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        porter: Authenticator,
        admit: Callable[[Caller], None] = lambda _: None,
        answer: ErrorResponder = problem.of_refusal,
    ) -> None:
        self._app = app
        self._answer = answer
        self._porter = porter
        self._admit = admit

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Let a request pass, or answer why not."""
        if scope["type"] != "http":
            raise AssertionError("there are only requests")
        try:
            caller = await self._allowed(scope)
        except (KronError, HTTPException) as error:
            await self._refusal(scope, error)(scope, receive, send)
        else:
            with calling(caller, scope.get("request_id")):
                await self._app(scope, receive, send)

    def _refusal(self, scope: ASGIScope, error: Exception) -> Response:
        """Return what is answered to a request that is not let through; a browser learns where to sign in."""
        need = find(scope["method"], scope["path"]).need
        if isinstance(error, UnknownCallerError) and need is not None and need.page:
            return RedirectResponse("/login", HTTPStatus.SEE_OTHER)
        return self._answer(Request(scope), error)

    async def _allowed(self, scope: ASGIScope) -> Caller:
        need, methods = find(scope["method"], scope["path"])
        # What does not exist is nobody's business but of those who may look.
        wanted = need or Need(TokenScope.READ)
        caller = await self._porter.caller_of(scope, wanted)
        self._admit(caller)
        if need is None and methods:
            raise HTTPException(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": ", ".join(sorted(methods))})
        if need is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        if need.right is not None and not caller.may(need.right):
            raise ForbiddenError(right=need.right)
        return caller


def _bearer_of(scope: ASGIScope) -> str | None:
    """Return the token of a request; several, or another kind of proof, are none."""
    found: list[bytes] = [value for name, value in scope["headers"] if name == b"authorization"]
    if not found:
        return None
    kind, _, token = found[0].decode("latin-1").strip().partition(" ")
    if len(found) > 1 or kind.lower() != "bearer" or not token.strip():
        raise UnknownCallerError("the header Authorization must be `Bearer` and one token")
    return token.strip()


def _cookie_of(scope: ASGIScope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"cookie":
            try:
                jar = SimpleCookie(value.decode("latin-1"))
            except CookieError:
                return None
            if COOKIE in jar:
                return jar[COOKIE].value
    return None
