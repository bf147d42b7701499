"""The outbox: which pending notices are sent now, grouped into messages, and when to look again. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from kron.core.plan.notice import PINGS
from kron.core.plan.record import NoticeRecord, NoticeState

# The most notices of one message, and of one target that the outbox is read for at once.
MAX_GROUP = 1_000
EXPIRED = "given up: it could not be sent in time"


class SendLimits(NamedTuple):
    """How messages to one target are grouped and limited.

    A message is sent `wait_ms` after its first notice, with all that came in between, and at the earliest
    `interval_ms` after the last message. A notice that could not be sent is given up after `max_age_ms`; a
    ping, which would be misleading, after `max_ping_age_ms`.
    """

    wait_ms: int = 10_000
    interval_ms: int = 60_000
    max_age_ms: int = 86_400_000
    max_ping_age_ms: int = 3_600_000


DEFAULT_SEND_LIMITS = SendLimits()


class Queue(NamedTuple):
    """The key of one queue: messages of a queue are sent one after the other.

    Where several users share the outbox, each has queues of its own.
    """

    target: str
    is_ping: bool
    owner: str = ""


class Message(NamedTuple):
    """Notices that are sent together; a retry has the same id and the same notices."""

    id: str
    queue: Queue
    notices: tuple[NoticeRecord, ...]

    def claimed(self) -> list[NoticeRecord]:
        """Return the notices with their batch and one attempt more, to be written before they are sent."""
        return [notice._replace(batch=self.id, tries=notice.tries + 1) for notice in self.notices]


def no_owner(_: str) -> str:
    """Return the owner of every job where none is told from another."""
    return ""


class Outbox(NamedTuple):
    """What to do with the pending notices: messages to send, notices to give up, when to look again."""

    messages: list[Message]
    expired: list[NoticeRecord]
    wake_at: int | None


def read_outbox(
    pending: Sequence[NoticeRecord],
    *,
    sent_at: Mapping[Queue, int],
    busy: Collection[Queue],
    limits: SendLimits,
    now: int,
    owner_of: Callable[[str], str] = no_owner,
) -> Outbox:
    """Return the due messages; `sent_at` is when each queue last sent one, and `busy` ones are sending.

    `owner_of` returns the owner of a job: notices of several are never sent together.
    """
    messages: list[Message] = []
    expired: list[NoticeRecord] = []
    wake_at: int | None = None
    for queue, notices in _by_queue(pending, owner_of).items():
        if queue in busy:
            continue
        max_age_ms = limits.max_ping_age_ms if queue.is_ping else limits.max_age_ms
        over = [notice for notice in notices if notice.created_at + max_age_ms <= now]
        expired += [_given_up(notice, now) for notice in over]
        rest = notices[len(over) :]
        if not rest:
            continue
        message = _next_message(queue, rest)
        at = _due_at(message, sent_at.get(queue), limits)
        if at <= now:
            messages.append(message)
        elif wake_at is None or at < wake_at:
            wake_at = at
    return Outbox(messages, expired, wake_at)


def _given_up(notice: NoticeRecord, now: int) -> NoticeRecord:
    last = f"{EXPIRED}: {notice.error}" if notice.error else EXPIRED
    return notice._replace(state=NoticeState.FAILED, due_at=None, error=last, ended_at=now)


def _by_queue(
    pending: Iterable[NoticeRecord], owner_of: Callable[[str], str]
) -> dict[Queue, list[NoticeRecord]]:
    queues: dict[Queue, list[NoticeRecord]] = {}
    for notice in sorted(pending, key=lambda notice: notice.number):
        queue = Queue(notice.target, notice.event in PINGS, owner_of(notice.identity))
        queues.setdefault(queue, []).append(notice)
    return queues


def _next_message(queue: Queue, notices: Sequence[NoticeRecord]) -> Message:
    """Return the message at the head of a queue: one that was tried before, one ping, or all that waits."""
    first = notices[0]
    if queue.is_ping:
        return Message(first.id, queue, (first,))
    batch = next((notice.batch for notice in notices if notice.batch is not None), None)
    if batch is not None:
        return Message(batch, queue, tuple(notice for notice in notices if notice.batch == batch))
    return Message(first.id, queue, tuple(notices[:MAX_GROUP]))


def _due_at(message: Message, sent_at: int | None, limits: SendLimits) -> int:
    first = message.notices[0]
    due_at = first.created_at if first.due_at is None else first.due_at
    if message.queue.is_ping or first.batch is not None:
        return due_at
    earliest = due_at if sent_at is None else sent_at + limits.interval_ms
    return max(first.created_at + limits.wait_ms, earliest)
