"""Who the certificates of clients speak for, by their subjects."""

from collections.abc import Mapping

from kron.core.job.fields import refuse
from kron.fronts.service.auth.principal import Caller, TokenScope, UnknownCallerError, rights_of, user_of


def subjects_of(document: object) -> Mapping[str, Caller]:
    """Return who may call with which certificate: `{"CN=ci": {"user_id": "ci", "scopes": ["read"]}}`."""
    if not isinstance(document, Mapping):
        raise refuse(document, "must be an object of subjects")
    return {str(subject): _caller_of(str(subject), entry) for subject, entry in document.items()}


def _caller_of(subject: str, entry: object) -> Caller:
    if not isinstance(entry, Mapping) or not set(entry) <= {"user_id", "scopes", "groups"}:
        raise refuse(subject, "must be an object with user_id, scopes and groups")
    rights = rights_of(entry.get("scopes"))
    named = entry.get("scopes")
    if not isinstance(named, list) or len(rights) != len(named):
        raise refuse(subject, f"scopes must be a list of {', '.join(TokenScope)}")
    groups = entry.get("groups", [])
    users = _users_of(subject, [entry.get("user_id"), *(groups if isinstance(groups, list) else [None])])
    return Caller(users[0], rights, None if TokenScope.ADMIN in rights else users)


def _users_of(subject: str, names: list[object]) -> tuple[str, ...]:
    try:
        return tuple(dict.fromkeys(user_of(name) for name in names))
    except UnknownCallerError as cause:
        raise refuse(subject, "user_id and groups must be names") from cause
