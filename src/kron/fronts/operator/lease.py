"""Leader election by a Lease: one operator decides, and its token grows with every take-over.

A holder counts as gone when its Lease has not changed for its duration by the clock of the observer, so that
the clocks of two machines are never compared.
"""

import json
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import NamedTuple

from kron.core.errors import OwnedError, StoreUnavailableError
from kron.core.plan.incident import EXPIRED, STOPPED
from kron.core.plan.step import Predecessor
from kron.core.time.instant import EPOCH, MILLISECOND
from kron.launchers.kubernetes.api import LEASES, ApiClient, ApiError, ApiUnavailableError, Document
from kron.ports import Clock

# The latest instant that an owner has seen, in milliseconds: its successor's time never goes back behind it.
HIGH = "kron.io/high"
# For how long at least each of the last owners held the Lease: pairs of its token and milliseconds.
LED = "kron.io/led"
MAX_TRIES = 5
# How much of that is kept: no wait is longer.
MAX_LED_MS, MAX_OWNERS = 60_000, 100


class LeaseGrant(NamedTuple):
    """A lease that was acquired: its fencing token, its last owner, and the latest instant that one saw."""

    token: int
    predecessor: Predecessor | None
    high: int


class LeaderLease:
    """The Lease of one group of operators."""

    def __init__(
        self, api: ApiClient, clock: Clock, *, namespace: str, name: str, duration: timedelta
    ) -> None:
        self._api = api
        self._clock = clock
        self._namespace = namespace
        self._name = name
        self.duration = duration
        self._document: Document = {}
        # The state of another holder's Lease, and since when it has been unchanged by the monotonic clock.
        self._seen: tuple[object, ...] = ()
        self._seen_since = 0.0
        # The owners before this one, as in `LED`, and since when this one holds the Lease.
        self._led: list[tuple[int, int]] = []
        self._since = 0.0

    async def acquire(self, owner: str) -> LeaseGrant:
        """Become the holder, or raise OwnedError."""
        document = await self._read()
        before = document.get("spec") or {}
        holder = before.get("holderIdentity") or ""
        if holder and holder != owner and not self._has_expired(before):
            raise OwnedError(namespace=self._name, owner=holder)
        transitions = int(before.get("leaseTransitions", -1)) + 1
        spec = {
            "holderIdentity": owner,
            "leaseDurationSeconds": max(1, round(self.duration.total_seconds())),
            "acquireTime": self._now_text(),
            "renewTime": self._now_text(),
            "leaseTransitions": transitions,
        }
        led = _led_of(document)
        if holder and holder != owner:
            # What it noted before, and for how long its Lease was seen unchanged since.
            led.append((transitions, round(1000 * (self._clock.monotonic() - self._seen_since))))
        self._led = _newest(led)
        self._document = await self._write({**document, "metadata": self._noted(document), "spec": spec})
        self._seen, self._since = (), self._clock.monotonic()
        high = int((document["metadata"].get("annotations") or {}).get(HIGH, 0))
        last = _predecessor(before, high) if before else None
        return LeaseGrant(transitions + 1, last, high)

    def _has_expired(self, spec: Document) -> bool:
        """Say whether the holder has not renewed its Lease for as long as it lasts."""
        seen = tuple(spec.get(name) for name in ("holderIdentity", "renewTime", "leaseTransitions"))
        now = self._clock.monotonic()
        if seen != self._seen:
            self._seen, self._seen_since = seen, now
        lasts = max(self.duration.total_seconds(), float(spec.get("leaseDurationSeconds") or 0))
        return now - self._seen_since >= lasts

    def free_of(self, token: int) -> float:
        """Return for how many seconds at least no owner with this token, or an earlier one, has held it.

        Each owner measures by its own monotonic clock how long it is the owner; no two clocks are compared.
        """
        later = sum(lasted for each, lasted in self._led if each > token)
        return later / 1000 + self._clock.monotonic() - self._since

    def _noted(self, document: Document, *, token: int = 0, high: int | None = None) -> Document:
        """Return the metadata of the Lease with what this owner, and those before, keep in it."""
        led = list(self._led)
        if token:
            led.append((token, int(1000 * (self._clock.monotonic() - self._since))))
        notes = {**(document["metadata"].get("annotations") or {}), LED: json.dumps(led)}
        if high is not None:
            notes[HIGH] = str(high)
        return {**document["metadata"], "annotations": notes}

    async def renew(self, owner: str, token: int, *, high: int) -> None:
        """Stay the holder, or raise OwnedError if another one took over."""
        await self._change(owner, token, {"renewTime": self._now_text()}, high)

    async def raise_token(self, owner: str, token: int, *, above: int, high: int) -> int:
        """Return a token above a given one: a Lease that was deleted counts its transitions anew."""
        if token > above:
            return token
        await self._change(owner, token, {"leaseTransitions": above}, high)
        return above + 1

    async def release(self, owner: str, token: int, *, high: int) -> None:
        """End the lease at once, so that another operator can take over."""
        await self._change(owner, token, {"holderIdentity": "", "renewTime": self._now_text()}, high)

    async def _change(self, owner: str, token: int, spec: Document, high: int) -> None:
        """Change the Lease as long as it is held with this token."""
        for _ in range(MAX_TRIES):
            held = self._document.get("spec") or {}
            if held.get("holderIdentity") != owner or held.get("leaseTransitions") != token - 1:
                raise OwnedError(namespace=self._name, owner=held.get("holderIdentity") or "another owner")
            metadata = self._noted(self._document, token=token, high=high)
            changed = {**self._document, "metadata": metadata, "spec": {**held, **spec}}
            try:
                self._document = await self._api.replace(LEASES, self._namespace, changed)
            except ApiError as error:
                if not error.is_conflict and not error.is_temporary:
                    raise unavailable(error) from error
                # A lost answer to an earlier renewal looks like a conflict: the Lease itself decides.
                self._document = await self._read()
            except ApiUnavailableError as error:
                raise unavailable(error) from error
            else:
                return
        raise StoreUnavailableError("The store cannot be used: the Lease changes all the time")

    async def _read(self) -> Document:
        try:
            return await self._api.get(LEASES, self._namespace, self._name)
        except ApiError as error:
            if error.is_missing:
                document = {"apiVersion": LEASES.api_version, "kind": LEASES.kind}
                return {**document, "metadata": {"name": self._name, "namespace": self._namespace}}
            raise unavailable(error) from error
        except ApiUnavailableError as error:
            raise unavailable(error) from error

    async def _write(self, document: Document) -> Document:
        is_new = "resourceVersion" not in document["metadata"]
        try:
            if is_new:
                return await self._api.create(LEASES, self._namespace, document)
            return await self._api.replace(LEASES, self._namespace, document)
        except ApiError as error:
            if error.status == HTTPStatus.CONFLICT:
                raise OwnedError(namespace=self._name, owner="another owner") from error
            raise unavailable(error) from error
        except ApiUnavailableError as error:
            raise unavailable(error) from error

    def _now_text(self) -> str:
        return micro_time(self._clock.now())


def micro_time(instant: datetime) -> str:
    """Write an instant as Kubernetes writes a MicroTime."""
    return instant.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _predecessor(spec: Document, high: int) -> Predecessor | None:
    holder = spec.get("holderIdentity") or ""
    try:
        ended = (datetime.fromisoformat(str(spec.get("renewTime"))) - EPOCH) // MILLISECOND
    except (ValueError, TypeError):
        ended = high
    return Predecessor(holder or "the last owner", ended, EXPIRED if holder else STOPPED)


def _led_of(document: Document) -> list[tuple[int, int]]:
    """Return how long the last owners held a Lease; what cannot be read counts for nothing."""
    try:
        rows = json.loads((document["metadata"].get("annotations") or {}).get(LED, "[]"))
        return [(int(token), max(0, int(lasted))) for token, lasted in rows]
    except (ValueError, TypeError):
        return []


def _newest(led: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the last owners, as many as the longest wait needs."""
    kept: list[tuple[int, int]] = []
    for each in reversed(led[-MAX_OWNERS:]):
        if sum(lasted for _, lasted in kept) >= MAX_LED_MS:
            break
        kept.insert(0, each)
    return kept


def unavailable(error: Exception) -> StoreUnavailableError:
    """Return the error of a store that the API server does not let be used."""
    return StoreUnavailableError(f"The store cannot be used: {error}", cause=error)
