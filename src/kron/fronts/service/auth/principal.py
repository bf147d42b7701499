"""Callers: who asks, what they may do, and whose schedules are theirs."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import NamedTuple

from kron.core.errors import KronError
from kron.core.identity import identity_fault

# The longest name of a user, in bytes: it stands before the names of their schedules.
MAX_USER = 200


class TokenScope(StrEnum):
    """What a caller may be allowed to do. Whoever is `admin` may do everything, for everybody."""

    READ = "read"
    WRITE = "write"
    RUN = "run"
    ADMIN = "admin"


class Caller(NamedTuple):
    """Who makes a request: a name for the audit, their rights, and the users whose schedules are theirs.

    The first of `users` is who a new schedule belongs to if nothing else is said. With None, all are theirs.
    """

    name: str
    rights: frozenset[TokenScope]
    users: tuple[str, ...] | None

    def may(self, right: TokenScope) -> bool:
        """Say whether this caller has a right."""
        return right in self.rights or TokenScope.ADMIN in self.rights

    def sees(self, user: str | None) -> bool:
        """Say whether what belongs to a user is this caller's; what belongs to nobody is the admins'."""
        return self.users is None or user in self.users


EVERYTHING = frozenset({TokenScope.ADMIN})
# The program itself, which nobody has to let in; whoever calls where nobody has to say who they are; and
# somebody of whom nothing is known.
PROGRAM = Caller("program", EVERYTHING, None)
ANYBODY = Caller("anybody", EVERYTHING, None)
NOBODY = Caller("nobody", frozenset(), ())


class Visit(NamedTuple):
    """A request under way: who makes it, its id, and the keys of the runs that were shown so far."""

    caller: Caller
    request_id: str | None
    shown: set[str]


_present: ContextVar[Visit | None] = ContextVar("kron_visit", default=None)


def present_caller() -> Caller:
    """Return who made the request under way; outside of requests it is the program itself."""
    visit = _present.get()
    return PROGRAM if visit is None else visit.caller


def own_user() -> str | None:
    """Return the user that what the present caller makes belongs to if nothing else is said."""
    users = present_caller().users
    return users[0] if users else None


def present_request() -> str | None:
    """Return the id of the request under way, if there is one."""
    visit = _present.get()
    return None if visit is None else visit.request_id


def shown_keys() -> set[str]:
    """Return the keys of the runs that the request under way was shown; outside of requests nobody counts."""
    visit = _present.get()
    return set() if visit is None else visit.shown


@contextmanager
def calling(caller: Caller, request_id: str | None = None) -> Iterator[None]:
    """Act for a caller."""
    token = _present.set(Visit(caller, request_id, set()))
    try:
        yield
    finally:
        _present.reset(token)


def rights_of(words: object) -> frozenset[TokenScope]:
    """Return the rights that are named in a list, or in a text with spaces; other words mean nothing here."""
    listed = words.split() if isinstance(words, str) else words
    known = {right.value for right in TokenScope}
    named = listed if isinstance(listed, list | tuple | frozenset) else ()
    return frozenset(TokenScope(word) for word in named if isinstance(word, str) and word in known)


def prefix_of(user: str) -> str:
    """Return what the names of a user's schedules begin with; no other user's can begin so."""
    return user.replace("%", "%25").replace("/", "%2F") + "/"


def slug_of(user: str) -> str:
    """Return what the names of a user's workflows begin with, in signs that such names may have."""
    signs = (
        sign if sign.isascii() and (sign.isalnum() or sign == "-") else f"_{ord(sign):x}_" for sign in user
    )
    return "".join(signs) + "."


class UnknownCallerError(KronError):
    """A request does not show who makes it, or shows it in a way that cannot be trusted."""

    code = "unauthenticated"

    def __init__(self, reason: str) -> None:
        super().__init__(f"Not authenticated: {reason}", reason=reason)
        self.reason = reason


class ForbiddenError(KronError):
    """A caller is known and may not do this."""

    code = "forbidden"

    def __init__(self, *, right: TokenScope) -> None:
        super().__init__(f'Not allowed: this needs the scope "{right}"', scope=right.value)


class TooManyError(KronError):
    """A caller asks more often, or for more, than is allowed; `wait_s` says when to come back, if ever."""

    code = "too_many"

    def __init__(self, message: str, *, wait_s: int | None = None) -> None:
        super().__init__(message, wait_s=wait_s)
        self.wait_s = wait_s


def user_of(name: object) -> str:
    """Return the name of a user or group, or raise."""
    if not isinstance(name, str) or identity_fault(name) is not None or len(name.encode()) > MAX_USER:
        raise UnknownCallerError(f"the token names no user, or one with more than {MAX_USER} bytes")
    return name
