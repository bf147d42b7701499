"""The sender: sends the notices of a namespace at least once, in tasks apart from the engine's loop."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

from kron.app.notify.channel import (
    Channel,
    Channels,
    CommandChannel,
    EmailChannel,
    WebhookChannel,
    channel_of,
)
from kron.app.notify.command import run_command
from kron.app.notify.message import MAX_LISTED, Composed, DescribedNotice, compose
from kron.app.notify.webhook import WebhookSender
from kron.app.query import Query
from kron.core.errors import KronError, StoreError
from kron.core.job.notify import Notify
from kron.core.plan.notice import NOTICE_CODES
from kron.core.plan.outbox import (
    DEFAULT_SEND_LIMITS,
    MAX_GROUP,
    Message,
    Outbox,
    Queue,
    SendLimits,
    no_owner,
    read_outbox,
)
from kron.core.plan.record import NoticeRecord, NoticeState
from kron.core.time.instant import rfc3339
from kron.history_ports import NoticeOutbox
from kron.launchers.backoff import Backoff
from kron.launchers.delivery import DeliveryResult
from kron.launchers.http.egress import EgressPolicy
from kron.launchers.launch import user_of
from kron.launchers.secret import SecretUnavailableError
from kron.ports import Clock, Journal, ReadStore
from kron.runtime.engine import Engine
from kron.runtime.wakeup import first_of

if TYPE_CHECKING:
    from kron.app.notify.email import EmailSender

_log = logging.getLogger("kron.notify")
# Tries of one message, about four hours of them, and the delays between.
BACKOFF = Backoff(max_attempts=30, first_delay=timedelta(seconds=1), max_delay=timedelta(minutes=10))
# Messages that are sent at once, in all, of one owner, and to one target, of different owners; an owner of
# which none is being sent has one whatever the others do.
MAX_SENDING, MAX_OWN, MAX_OF_TARGET = 10, 5, 5
# Notices that are read at once, and that may wait, of one owner: more are those of a flood.
MAX_READ, MAX_WAITING = 1_000, 10_000
GIVEN_UP = f"given up: more than {MAX_WAITING:,} notifications of this owner were waiting"
# After a turn of the outbox, or the composition of a message, the sender rests for several times as long, so
# that it leaves the processor to the starts; the longest rest, in seconds.
REST_FACTOR, MAX_REST_S = 4, 1.0
# Queues whose last message is remembered; more are forgotten once their interval is over.
MAX_QUEUES = 1_000
# After a failure of the store.
RETRY_AFTER_MS = 5_000
# How long a stop waits for messages that are being sent, in seconds.
LAST_SENDS_S = 3.0
HEARTBEAT, INLINE = "heartbeat", "webhook"
NOTHING = Outbox([], [], None)


class OutboxStore(ReadStore, NoticeOutbox, Protocol):
    """The store verbs the sender needs: reads, and the progress of notices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyOptions:
    """How a worker notifies: the channels that schedules may name, and the default of schedules.

    `egress` limits the URLs of schedules; with a `secret` requests to webhooks are signed.
    """

    channels: Channels = field(default_factory=dict)
    default: Notify | None = None
    limits: SendLimits = DEFAULT_SEND_LIMITS
    egress: EgressPolicy | None = None
    secret: bytes | None = None
    # Several users share the service: no message is about the schedules of two of them.
    are_apart: bool = False
    # Returns the target of a notice as it is used: a store may have its URL encrypted.
    open_target: Callable[[str], str] = str

    def egress_policy(self) -> EgressPolicy | None:
        """Return the egress policy, which always allows the URLs of the operator's channels."""
        if self.egress is None:
            return None
        own = [each.address for each in self.channels.values() if isinstance(each, WebhookChannel)]
        return replace(self.egress, urls=self.egress.urls.union(own))


class Sender:
    """Sends what the engine's decisions wrote to the outbox, as long as its engine owns the first shard.

    A message is marked before it is sent and again afterwards, so a crash in between sends it once more, with
    the same id and the same notices.
    """

    def __init__(
        self, store: OutboxStore, clock: Clock, *, namespace: str, options: NotifyOptions, journal: Journal
    ) -> None:
        self.options = options
        self._store = store
        self._clock = clock
        self._namespace = namespace
        self._journal = journal
        self._called = asyncio.Event()
        self._leaving = asyncio.Event()
        self._composing = asyncio.Lock()
        self._composers = WeakValueDictionary[str, asyncio.Lock]()
        self._task: asyncio.Task[None] | None = None
        self._sending: dict[Queue, asyncio.Task[None]] = {}
        self._owners: dict[Queue, str] = {}
        self._sent_at: dict[Queue, int] = {}
        # Results that the store has not taken yet.
        self._unwritten: list[NoticeRecord] = []
        self._emails: EmailSender | None = None

    @property
    def default(self) -> Notify | None:
        """Return the notifications of jobs that define none."""
        return self.options.default

    # --- life cycle ------------------------------------------------------------------------------

    def start(self, engine: Engine) -> None:
        """Send the notices of an engine's namespace until `stop`."""
        self._leaving.clear()
        self._now = engine.now
        self._query = Query(self._store, self._namespace, now=engine.now)
        self._webhooks = WebhookSender(
            self._clock, egress=self.options.egress_policy(), secret=self.options.secret
        )
        self._task = asyncio.create_task(self._run(engine), name=f"kron notify {self._namespace}")

    def call(self) -> None:
        """Look into the outbox now: a notice was written."""
        self._called.set()

    async def stop(self) -> None:
        """Send nothing more; messages that are being sent have a moment to end, the others stay pending."""
        if self._task is None:
            return
        self._leaving.set()
        self._called.set()
        await asyncio.wait([self._task])
        if self._sending:
            await asyncio.wait(self._sending.values(), timeout=LAST_SENDS_S)
        self.kill()
        try:
            await self._write_results()
        except StoreError as error:
            _log.warning("results of notifications not written, so these are sent again: %s", error)

    def kill(self) -> None:
        """Stop at once without writing anything, as a crash would."""
        if self._task is None:
            return
        for task in (self._task, *self._sending.values()):
            task.cancel()
        self._task = None
        self._webhooks.close()
        if self._emails is not None:
            self._emails.close()
            self._emails = None

    # --- the loop --------------------------------------------------------------------------------

    async def _run(self, engine: Engine) -> None:
        while not self._leaving.is_set():
            self._called.clear()
            now, began = engine.now(), self._clock.monotonic()
            wake_at = None
            if engine.owns_first_shard:
                try:
                    outbox = await self._send_due(now)
                except StoreError as error:
                    _log.warning("the outbox of notifications cannot be used: %s", error)
                    wake_at = now + RETRY_AFTER_MS
                else:
                    wake_at = outbox.wake_at
            await self._rest(began)
            await first_of(self._clock, self._called, wake_at)

    async def _rest(self, began: float) -> None:
        """Rest for some times as long as work has taken, which a flood of notices would repeat at once."""
        seconds = min(REST_FACTOR * (self._clock.monotonic() - began), MAX_REST_S)
        if seconds > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._leaving.wait()

    async def _send_due(self, now: int) -> Outbox:
        """Claim the messages that are due, and start to send them."""
        with self._clock.working():
            await self._write_results()
            pending = await self._pending(now)
            # Some may have been sent while the outbox was read.
            ended = {notice.number for notice in self._unwritten}
            pending = [notice for notice in pending if notice.number not in ended]
            if not pending:
                return NOTHING
            outbox = read_outbox(
                pending,
                sent_at=self._sent_at,
                busy=self._sending.keys(),
                limits=self.options.limits,
                now=now,
                owner_of=owner_in if self.options.are_apart else no_owner,
            )
            messages = self._admitted(outbox.messages)
            claimed = {message: message.claimed() for message in messages}
            written = [*outbox.expired, *(notice for each in claimed.values() for notice in each)]
            if written:
                await self._store.note_notices(self._namespace, written)
        for notice in outbox.expired:
            self._note(notice.target, "failed", [notice], notice.error)
        for message, notices in claimed.items():
            self._begin(message._replace(notices=tuple(notices)), now)
        return outbox

    async def _pending(self, now: int) -> list[NoticeRecord]:
        """Return the oldest notices to be sent, and give up those of owners with too many."""
        space = self._namespace
        pending = await self._store.pending_notices(space, limit=MAX_GROUP, of_owner=MAX_READ)
        counts = Counter(owner_in(notice.identity) for notice in pending)
        if any(count >= MAX_READ for count in counts.values()):
            count = await self._store.give_up_notices(space, most=MAX_WAITING, error=GIVEN_UP, now=now)
            if count:
                _log.warning("%d notifications %s", count, GIVEN_UP)
        if len(self._sent_at) > MAX_QUEUES:
            recent = now - self.options.limits.interval_ms
            self._sent_at = {queue: at for queue, at in self._sent_at.items() if at > recent}
        return pending

    def _admitted(self, due: Sequence[Message]) -> list[Message]:
        """Return the messages to send now: targets of one owner that hang delay no other owner.

        Owners who share a target take turns: the first is the one whose last message is the longest ago.
        """
        own, total = Counter(self._owners[queue] for queue in self._sending), len(self._sending)
        targets = Counter(queue.target for queue in self._sending)
        admitted = []
        for message in sorted(due, key=lambda each: self._sent_at.get(each.queue, 0)):
            owner, target = _owner_of(message), message.queue.target
            has_turn = not own[owner] or (total < MAX_SENDING and own[owner] < MAX_OWN)
            if has_turn and targets[target] < MAX_OF_TARGET:
                admitted.append(message)
                own[owner] += 1
                targets[target] += 1
                total += 1
        return admitted

    def _begin(self, message: Message, now: int) -> None:
        self._sent_at[message.queue] = now
        self._owners[message.queue] = _owner_of(message)
        task = asyncio.create_task(self._send(message, now), name=f"kron notify {message.id}")
        self._sending[message.queue] = task

    async def _send(self, message: Message, now: int) -> None:
        """Send one message and keep its result for the next write."""
        target, is_ping, _ = message.queue
        channel: Channel | None = None
        try:
            target = self.options.open_target(target)
            channel = None if is_ping else channel_of(target, self.options.channels)
            result = await self._deliver(message, channel, target)
        except SecretUnavailableError as error:
            result = DeliveryResult(str(error))
        except Exception as error:  # noqa: BLE001 - one message must not end the sender
            _log.exception("a notification failed unexpectedly")
            result = DeliveryResult(f"it failed unexpectedly: {type(error).__name__}")
        shown = HEARTBEAT if is_ping else None if channel is None else channel.shown
        self._unwritten += self._finished(message, result, shown, now)
        del self._sending[message.queue], self._owners[message.queue]
        self._called.set()

    def _finished(
        self, message: Message, result: DeliveryResult, shown: str | None, now: int
    ) -> list[NoticeRecord]:
        """Return the notices of a message after an attempt: sent, to be tried again, or given up."""
        tries = message.notices[0].tries
        delay_s = None
        if result.error is not None and result.retry:
            delay_s = BACKOFF.delay_after(message.id, tries, requested_s=result.retry_after_s)
        name = "sent" if result.error is None else "failed" if delay_s is None else "retried"
        self._note(message.queue.target, name, message.notices, result.error, is_ping=message.queue.is_ping)
        ended_at = max(now, self._now())
        if name == "retried":
            assert delay_s is not None
            due_at = ended_at + round(1000 * delay_s)
            return [each._replace(due_at=due_at, error=result.error) for each in message.notices]
        state = NoticeState.SENT if name == "sent" else NoticeState.FAILED
        return [
            each._replace(state=state, due_at=None, ended_at=ended_at, sent_as=shown, error=result.error)
            for each in message.notices
        ]

    async def _write_results(self) -> None:
        """Write the results of messages; a ping that was sent is of no use any more."""
        if not self._unwritten:
            return
        results = list(self._unwritten)
        removed = [each.number for each in results if each.sent_as == HEARTBEAT and each.error is None]
        gone = frozenset(removed)
        kept = [each for each in results if each.number not in gone]
        await self._store.note_notices(self._namespace, kept, removed=removed)
        self._unwritten = self._unwritten[len(results) :]

    # --- one message -----------------------------------------------------------------------------

    async def _deliver(self, message: Message, channel: Channel | None, target: str) -> DeliveryResult:
        if message.queue.is_ping:
            return await self._webhooks.ping(message.notices[0]._replace(target=target))
        if channel is None:
            return DeliveryResult(f'there is no channel "{message.queue.target}" in the settings')
        composed = await self._composed(message)
        match channel:
            case WebhookChannel():
                user_id = None if target in self.options.channels else await self._user_of(message)
                return await self._webhooks.post(channel, composed, _owner_of(message), user_id=user_id)
            case EmailChannel():
                return await self._email_sender().send(channel, composed)
            case CommandChannel():
                return await run_command(channel, composed)

    async def _user_of(self, message: Message) -> str | None:
        """Return the user whose key signs a message to a URL of its schedules; None if they have no user.

        A message about schedules of several users is signed as if they were one: no single user has that key.
        """
        names = {notice.identity for notice in message.notices}
        users = {user_of(state.job) for state in await self._store.cases(self._namespace, sorted(names))}
        return "\n".join(sorted(users)) or None

    def _email_sender(self) -> "EmailSender":
        """Return the sender of e-mails; it is imported with the first one, because it takes memory."""
        if self._emails is None:
            from kron.app.notify.email import EmailSender

            self._emails = EmailSender(self._clock)
        return self._emails

    async def _composed(self, message: Message) -> Composed:
        """Return a message with the sentences of `why` about the periods it lists."""
        # Of one owner one message at a time waits for the turn of another.
        own = self._composers.setdefault(_owner_of(message), asyncio.Lock())
        async with own, self._composing:
            began = self._clock.monotonic()
            described = [await self._described(each) for each in message.notices[:MAX_LISTED]]
            await self._rest(began)
        return compose(message, described)

    async def _described(self, notice: NoticeRecord) -> DescribedNotice:
        try:
            with self._clock.working():
                explanation = await self._query.why(notice.identity, rfc3339(notice.nominal_time))
        except KronError:
            # The schedule may be gone; the headline is enough.
            return DescribedNotice(notice)
        if explanation.outcome is None:
            # A manual run is no period.
            return DescribedNotice(notice)
        chain = [fact.sentence for fact in explanation.facts if fact.code not in NOTICE_CODES]
        remedy = [] if explanation.remedy is None else [explanation.remedy]
        return DescribedNotice(notice, [explanation.headline, *chain, *remedy])

    def _note(
        self,
        target: str,
        result: str,
        notices: Sequence[NoticeRecord],
        error: str | None,
        *,
        is_ping: bool = False,
    ) -> None:
        """Count and log an attempt to send a message."""
        channel = HEARTBEAT if is_ping else target if target in self.options.channels else INLINE
        fields = {"channel": channel, "result": result, "notices": len(notices), "error": error}
        event = "notified" if result == "sent" else "notification_failed"
        self._journal.note(event, {"namespace": self._namespace, **fields})


def _owner_of(message: Message) -> str:
    """Return whose message it is: the names of a user's schedules start with the user."""
    return owner_in(message.notices[0].identity)


def owner_in(identity: str) -> str:
    """Return the owner that the name of a job starts with."""
    return identity.partition("/")[0]
