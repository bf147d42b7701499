"""Secrets of launcher objects: sealed at rest with the operator's keys, or referenced by name.

Every part of a launcher object that redaction hides is encrypted together, and stored beside the redacted
object. So reads need no key; only a start does. The encryption is deterministic: the same object of the
same job gives the same text, so that an unchanged definition is not an edit.
"""

import hmac
import json
import os
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from kron.core.errors import InputError, Problem
from kron.core.job.notify import Notify, sealed_part, sealed_target
from kron.core.plan.record import RunRecord
from kron.core.plan.report import Launch, RunEvent
from kron.launchers.launch import report_of
from kron.launchers.spec import NO_KEYS, SEALED, LauncherSettings, launcher_text_of
from kron.ports import Clock, Launcher, ReportSink

VERSION = "v1"
NONCE_BYTES = 12
# What the two keys that a secret key stands for are derived with.
ENCRYPTION, NONCES, NAME = b"kron launcher secrets 1\n", b"kron launcher nonces 1\n", b"kron key name 1\n"
# A reference to a secret of the operator's, in a header or a variable.
# Bounded, and without a second opening: a text of openings alone is read in linear time.
REFERENCE = re.compile(r"\$\{secret:([^{}\s]{1,200})\}")
MARK = "${secret:"
FIELDS = ("headers", "env")
# What the URLs of notifications are encrypted for, in place of a job.
NOTIFY = b"\0notify"
MAX_FILE = 65_536


class SecretUnavailableError(InputError):
    """A secret of a launcher cannot be decrypted or read."""

    code = "secret_unavailable"


class Cipher(NamedTuple):
    """The keys that one secret key of the settings stands for; `name` is stored with every text it seals."""

    name: str
    encryption: bytes
    nonces: bytes

    def seal(self, text: bytes, job: bytes) -> str:
        """Return a text encrypted for one job."""
        nonce = hmac.new(self.nonces, job + b"\0" + text, sha256).digest()[:NONCE_BYTES]
        sealed = nonce + _aes(self.encryption).encrypt(nonce, text, job)
        return f"{VERSION}.{self.name}.{urlsafe_b64encode(sealed).decode()}"

    def open(self, sealed: bytes, job: bytes) -> bytes:
        """Return the text, or raise an exception of `cryptography` if it was changed or moved."""
        text: bytes = _aes(self.encryption).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], job)
        return text


def cipher_of(secret: str) -> Cipher:
    """Return the keys of a secret key."""

    def derived(purpose: bytes) -> bytes:
        return hmac.new(secret.encode(), purpose, sha256).digest()

    return Cipher(derived(NAME).hex()[:12], derived(ENCRYPTION), derived(NONCES))


class Vault:
    """Seals the secrets of launcher objects, opens them for a start, and resolves references.

    The first of `keys` seals, and all open. `sources` are the operator's secrets by name, each `env:VARIABLE`
    or `file:PATH`; one whose name has a slash belongs to the user before it.
    """

    def __init__(self, keys: Sequence[str] = (), sources: Mapping[str, str] | None = None) -> None:
        self.keys = tuple(keys)
        ciphers = [cipher_of(key) for key in keys]
        self._first = ciphers[0] if ciphers else None
        self._ciphers = {cipher.name: cipher for cipher in ciphers}
        self._sources = dict(sources or {})

    def seal(self, settings: LauncherSettings, identity: str) -> str:
        """Return the text to store for a job's launcher."""
        shown, whole = settings.redacted(), settings.to_dict()
        secret = {name: value for name, value in whole.items() if shown.get(name) != value}
        if self._first is None or not secret:
            return launcher_text_of(settings)
        sealed = self._first.seal(json.dumps(secret).encode(), identity.encode())
        return json.dumps({**shown, SEALED: sealed}, ensure_ascii=False, separators=(",", ":"))

    def seal_notify(self, notify: Notify) -> Notify:
        """Return notifications with their URLs encrypted, if there is a key.

        Equal URLs of several jobs are encrypted alike, so that their messages are grouped.
        """
        return notify if self._first is None else notify.with_urls(self._sealed_target)

    def _sealed_target(self, target: str) -> str:
        assert self._first is not None
        if sealed_part(target) is not None:
            target = self.open_target(target)
        return sealed_target(target, self._first.seal(json.dumps({"url": target}).encode(), NOTIFY))

    def open_target(self, target: str) -> str:
        """Return the target of a notification as it is used, or raise SecretUnavailableError."""
        sealed = sealed_part(target)
        return target if sealed is None else str(self._opened(sealed, NOTIFY.decode(), "notification")["url"])

    def unseal(self, text: str, identity: str) -> str:
        """Return a stored launcher object with its secrets, or raise SecretUnavailableError."""
        document = _document(text)
        if SEALED not in document:
            return text
        secret = self._opened(str(document.pop(SEALED)), identity)
        return json.dumps({**document, **secret}, ensure_ascii=False, separators=(",", ":"))

    def open(self, text: str, identity: str) -> str:
        """Return a stored launcher object as a start needs it: with its secrets, references resolved."""
        if f'"{SEALED}"' not in text and MARK not in text:
            return text
        text = self.unseal(text, identity)
        if MARK not in text:
            return text
        document = _document(text)
        user = document.get("user_id")
        for name in FIELDS:
            values = document.get(name)
            if isinstance(values, dict):
                document[name] = {key: self._resolved(str(value), user) for key, value in values.items()}
        return json.dumps(document, ensure_ascii=False, separators=(",", ":"))

    def problems(self, settings: LauncherSettings) -> list[Problem]:
        """Return which references of a launcher object name no secret of its user."""
        document = settings.to_dict()
        problems = []
        for field in FIELDS:
            values = document.get(field)
            for key, value in values.items() if isinstance(values, dict) else ():
                for name in REFERENCE.findall(str(value)):
                    if not self._may(name, settings.user_id):
                        reason = f'refers to "{name}", which launcher_secrets does not have for this user'
                        problems.append(Problem(f"launcher.{field}.{key}", None, reason))
        return problems

    def values(self) -> list[str]:
        """Return the operator's secrets that can be read now, which must not appear in a log."""
        found = []
        for name in self._sources:
            try:
                found.append(self._read(name))
            except SecretUnavailableError:
                continue
        return found

    def _opened(self, sealed: str, identity: str, of: str = "launcher") -> Mapping[str, object]:
        version, _, rest = sealed.partition(".")
        name, _, text = rest.partition(".")
        cipher = self._ciphers.get(name)
        if version != VERSION or cipher is None:
            reason = f"no key of the setting secret_keys has the name {name}" if self._ciphers else NO_KEYS
            raise SecretUnavailableError(f"The secrets of the {of} cannot be decrypted: {reason}")
        try:
            secret: Mapping[str, object] = json.loads(cipher.open(urlsafe_b64decode(text), identity.encode()))
        except ImportError:
            raise
        except Exception as cause:
            reason = "the stored text was changed, or belongs to another schedule"
            raise SecretUnavailableError(f"The secrets of the {of} cannot be decrypted: {reason}") from cause
        return secret

    def _may(self, name: str, user: object) -> bool:
        owner, slash, _ = name.rpartition("/")
        return name in self._sources and (not slash or owner == user)

    def _resolved(self, value: str, user: object) -> str:
        def secret(match: re.Match[str]) -> str:
            name = match[1]
            if not self._may(name, user):
                reason = f'launcher_secrets has no "{name}" for this user'
                raise SecretUnavailableError(f"A secret of the launcher cannot be read: {reason}")
            return self._read(name)

        return REFERENCE.sub(secret, value)

    def _read(self, name: str) -> str:
        kind, _, place = self._sources[name].partition(":")
        if kind == "env":
            if place in os.environ:
                return os.environ[place]
            reason = f"the variable {place} is not set"
        else:
            try:
                with Path(place).open("rb") as file:
                    return file.read(MAX_FILE).decode().rstrip("\r\n")
            except (OSError, ValueError) as cause:
                reason = f"{place}: {getattr(cause, 'strerror', None) or 'is not UTF-8'}"
        raise SecretUnavailableError(f'The secret "{name}" of launcher_secrets cannot be read: {reason}')


def _aes(key: bytes):  # type: ignore[no-untyped-def] # the package is optional
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _document(text: str) -> dict[str, object]:
    document: dict[str, object] = json.loads(text)
    return document


class SecretLauncher:
    """Wraps a launcher: it gets each launcher object with its secrets, or a start fails with the reason."""

    def __init__(self, launcher: Launcher, vault: Vault, clock: Clock) -> None:
        self.traits = launcher.traits
        self._launcher = launcher
        self._vault = vault
        self._clock = clock
        self.end: Callable[[RunRecord], None] = launcher.end
        self.close = launcher.close

    @property
    def busy(self) -> bool:
        """Return whether executions are in flight."""
        return self._launcher.busy

    def start(self, launch: Launch, sink: ReportSink) -> None:
        """Start an execution with the secrets of its launcher object."""
        try:
            opened = self._opened(launch)
        except SecretUnavailableError as error:
            sink(report_of(self._clock, launch.run, RunEvent.LAUNCH_FAILED, str(error)))
        else:
            self._launcher.start(opened, sink)

    async def adopt(self, runs: Iterable[Launch], sink: ReportSink) -> frozenset[str]:
        """Resume tracking executions; one whose secrets are lost may still run, but cannot start again."""
        launches = []
        for launch in runs:
            try:
                launches.append(self._opened(launch))
            except SecretUnavailableError:
                launches.append(launch)
        return await self._launcher.adopt(launches, sink)

    def _opened(self, launch: Launch) -> Launch:
        job = launch.job
        text = self._vault.open(job.launcher, job.identity)
        return launch if text is job.launcher else launch._replace(job=job._replace(launcher=text))
