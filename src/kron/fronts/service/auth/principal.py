"""Principals: who makes a request, which scopes they hold, and whose schedules they can access."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple

from kron.core.errors import KronError
from kron.core.fields import identity_fault, invalid_value
from kron.core.plan.compiled import cached_by_text

# The longest name of a user, in bytes: it is the prefix of their schedules' names.
MAX_USER = 200
# A longer prefix of workflow names is hashed: such a name has at most 128 characters.
MAX_PREFIX = 96
# How many launcher texts are kept parsed, to know the owners of schedules.
MAX_OWNERS = 4_096


class TokenScope(StrEnum):
    """A permission that a caller holds; `admin` includes the others, for every tenant."""

    READ = "read"
    WRITE = "write"
    RUN = "run"
    ADMIN = "admin"


class UnauthenticatedError(KronError):
    """A request has no valid credentials."""

    code = "unauthenticated"

    def __init__(self, reason: str) -> None:
        super().__init__(f"Not authenticated: {reason}", reason=reason)
        self.reason = reason


class ForbiddenError(KronError):
    """An authenticated caller lacks a scope."""

    code = "forbidden"

    def __init__(self, *, scope: TokenScope) -> None:
        super().__init__(f'Not allowed: needs scope "{scope}"', scope=scope.value)


class LimitExceededError(KronError):
    """A caller exceeds a rate limit or a quota; `wait_s` is the time until a retry can succeed, if any."""

    code = "too_many"

    def __init__(self, message: str, *, wait_s: int | None = None) -> None:
        super().__init__(message, wait_s=wait_s)
        self.wait_s = wait_s


class Caller(NamedTuple):
    """Who makes a request: a name for the audit log, scopes, and the users whose schedules they can access.

    The first of `users` is the default owner of new schedules. None gives access to all users.
    A caller without a token, such as a user of the host, cannot sign out.
    """

    name: str
    scopes: frozenset[TokenScope]
    users: tuple[str, ...] | None
    has_token: bool = True

    def may(self, scope: TokenScope) -> bool:
        """Return whether this caller holds a scope."""
        return scope in self.scopes or TokenScope.ADMIN in self.scopes

    def sees(self, user: str | None) -> bool:
        """Return whether this caller can access a user's schedules; those without an owner need admin."""
        return self.users is None or user in self.users


EVERYTHING = frozenset({TokenScope.ADMIN})
# Kron's own code outside of requests; any caller where authentication is off; a caller of a public route.
PROGRAM = Caller("program", EVERYTHING, None)
UNRESTRICTED = Caller("anybody", EVERYTHING, None)
ANONYMOUS = Caller("nobody", frozenset(), ())
# Any caller where authentication is off and the records are read-only.
READER = UNRESTRICTED._replace(scopes=frozenset({TokenScope.READ}))


class RequestContext(NamedTuple):
    """The current request: its caller, its id, and the keys of the runs it has listed."""

    caller: Caller
    request_id: str | None
    listed_keys: set[str]


_current: ContextVar[RequestContext | None] = ContextVar("kron_request", default=None)


def current_caller() -> Caller:
    """Return the caller of the current request; outside of requests, Kron itself."""
    context = _current.get()
    return PROGRAM if context is None else context.caller


def current_actor() -> str | None:
    """Return the name of the current caller; None outside of requests and without authentication."""
    caller = current_caller()
    # By identity: an admin's token may bear any name.
    return None if caller is PROGRAM or caller is UNRESTRICTED else caller.name


def default_owner() -> str | None:
    """Return the default owner of schedules and workflows that the current caller creates."""
    users = current_caller().users
    return users[0] if users else None


def current_request_id() -> str | None:
    """Return the id of the current request, if any."""
    context = _current.get()
    return None if context is None else context.request_id


def listed_keys() -> set[str]:
    """Return the keys of the runs that the current request has listed; outside of requests none is kept."""
    context = _current.get()
    return set() if context is None else context.listed_keys


@contextmanager
def acting_as(caller: Caller, request_id: str | None = None) -> Iterator[None]:
    """Act on behalf of a caller."""
    token = _current.set(RequestContext(caller, request_id, set()))
    try:
        yield
    finally:
        _current.reset(token)


# --- names and owners ----------------------------------------------------------------------------


def parse_user(name: object) -> str:
    """Return the name of a user or group, or raise UnauthenticatedError."""
    if not isinstance(name, str) or identity_fault(name) is not None or len(name.encode()) > MAX_USER:
        raise UnauthenticatedError(f'the token\'s "sub" and "groups" must be names of 1 to {MAX_USER} bytes')
    return name


def parse_scopes(value: object) -> frozenset[TokenScope]:
    """Return the scopes of a list, or of a text separated by spaces; unknown ones are ignored."""
    listed = value.split() if isinstance(value, str) else value
    known = {scope.value for scope in TokenScope}
    names = listed if isinstance(listed, list | tuple | frozenset) else ()
    return frozenset(TokenScope(name) for name in names if isinstance(name, str) and name in known)


def workflow_prefix(user: str) -> str:
    """Return the prefix of a user's workflow names, in the characters that such names allow.

    No two users share one: an escape is `_` and hexadecimal digits, and a long name is `_h` and its hash.
    """
    escaped = "".join(
        character
        if character.isascii() and (character.isalnum() or (character == "-" and index))
        else f"_{ord(character):x}_"
        for index, character in enumerate(user)
    )
    if len(escaped) > MAX_PREFIX:
        escaped = f"_h{sha256(user.encode()).hexdigest()[:32]}_"
    return f"{escaped}."


@cached_by_text(MAX_OWNERS)
def owner_of(launcher: str) -> str | None:
    """Return the user who owns a schedule, from its stored launcher; None if it has no owner."""
    try:
        owner = json.loads(launcher).get("user_id")
    except (ValueError, AttributeError):
        return None
    return owner if isinstance(owner, str) else None


# --- client certificates -------------------------------------------------------------------------


def parse_subjects(document: object) -> Mapping[str, Caller]:
    """Return the callers of client certificates: `{"CN=ci": {"user_id": "ci", "scopes": ["read"]}}`."""
    if not isinstance(document, Mapping):
        raise invalid_value(document, "must be an object of subjects")
    return {str(subject): _parse_subject(str(subject), entry) for subject, entry in document.items()}


def _parse_subject(subject: str, entry: object) -> Caller:
    if not isinstance(entry, Mapping) or not set(entry) <= {"user_id", "scopes", "groups"}:
        raise invalid_value(subject, "must be an object with user_id, scopes and groups")
    names = entry.get("scopes")
    scopes = parse_scopes(names)
    if not isinstance(names, list) or len(scopes) != len(names):
        raise invalid_value(subject, f"scopes must be a list of {', '.join(TokenScope)}")
    groups = entry.get("groups", [])
    users = _parse_users(subject, [entry.get("user_id"), *(groups if isinstance(groups, list) else [None])])
    return Caller(users[0], scopes, None if TokenScope.ADMIN in scopes else users)


def _parse_users(subject: str, names: list[object]) -> tuple[str, ...]:
    try:
        return tuple(dict.fromkeys(parse_user(name) for name in names))
    except UnauthenticatedError as cause:
        raise invalid_value(subject, "user_id and groups must be names") from cause
