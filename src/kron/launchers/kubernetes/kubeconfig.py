"""Kubeconfigs: files that name clusters, users and contexts, merged as `kubectl` merges them."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kron.core.errors import InputError

Entry = Mapping[str, object]
KINDS = ("context", "cluster", "user")
CURRENT = "current-context"
# Fields that name files, which are relative to the folder of their kubeconfig.
FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
# Fields of a user that are not supported, and what to use instead.
REFUSED = {
    "auth-provider": "use exec, a token or a client certificate",
    "username": "use exec, a token or a client certificate",
    "as": "use the credentials of the user itself",
}


class InvalidAccessError(InputError):
    """A kubeconfig or a service account cannot be used."""

    code = "invalid_kubeconfig"


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """The merged entries of one or more files; `name` says which, for messages."""

    name: str
    current: object = None
    entries: Mapping[tuple[str, object], Entry] = field(default_factory=dict)

    def entry(self, kind: str, name: object) -> Entry:
        """Return the context, cluster or user that has a name."""
        found = self.entries.get((kind, name))
        if found is None:
            raise self.invalid(f"it has no {kind} {name!r}")
        return found

    def invalid(self, reason: str) -> InvalidAccessError:
        """Return the error that these files cannot be used."""
        return InvalidAccessError(f"{self.name} cannot be used: {reason}", path=self.name, reason=reason)


def read_kubeconfigs(paths: Iterable[Path], *, optional: bool = False) -> Kubeconfig:
    """Merge files: of several entries with one name, and of several current contexts, the first counts.

    With `optional` files that do not exist are skipped, but one of them has to exist.
    """
    wanted = list(dict.fromkeys(paths))
    found = [path for path in wanted if path.exists()] if optional else wanted
    if not found:
        name = os.pathsep.join(map(str, wanted))
        raise Kubeconfig(name).invalid("no such file")
    name, current = os.pathsep.join(map(str, found)), None
    entries: dict[tuple[str, object], Entry] = {}
    for path in found:
        document = _read(path)
        current = current or document.get(CURRENT)
        for key, entry in _entries_of(document, path.parent):
            entries.setdefault(key, entry)
    return Kubeconfig(name, current, entries)


def _read(path: Path) -> Entry:
    import yaml

    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, ValueError, yaml.YAMLError) as cause:
        raise Kubeconfig(str(path)).invalid(str(cause)) from cause
    if document is None:
        return {}  # an empty file, as `kubectl config` leaves
    if not isinstance(document, Mapping):
        raise Kubeconfig(str(path)).invalid("it is not a mapping")
    return document


def _entries_of(document: Entry, folder: Path) -> Iterable[tuple[tuple[str, object], Entry]]:
    for kind in KINDS:
        listed = document.get(f"{kind}s")
        for each in listed if isinstance(listed, list) else ():
            if isinstance(each, Mapping) and isinstance(each.get("name"), str):
                value = each.get(kind)
                yield (kind, each["name"]), _placed(value, folder) if isinstance(value, Mapping) else {}


def _placed(entry: Entry, folder: Path) -> Entry:
    """Return an entry whose files, and the program of whose plugin, are found from any folder."""
    placed = dict(entry)
    for name in FILES:
        if isinstance(file := entry.get(name), str) and file:
            placed[name] = str(folder.absolute() / file)
    plugin = entry.get("exec")
    if isinstance(plugin, Mapping) and os.sep in str(plugin.get("command")):
        placed["exec"] = {**plugin, "command": str(folder.absolute() / str(plugin["command"]))}
    return placed
