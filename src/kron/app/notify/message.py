"""Messages: the notices of one message as text and as JSON."""

from collections.abc import Sequence
from typing import NamedTuple

from kron.core.plan.notice import headline, summary
from kron.core.plan.outbox import Message
from kron.core.plan.record import NoticeRecord
from kron.core.time.instant import instant_text, rfc3339

# Events that one message describes; of the others it says how many there are.
MAX_LISTED = 20
MAX_SUBJECT = 200


class DescribedNotice(NamedTuple):
    """A notice, and the sentences of `why` about its period."""

    notice: NoticeRecord
    why: Sequence[str] = ()


class Composed(NamedTuple):
    """A message ready to send: its id, a line, a text and a JSON document."""

    id: str
    subject: str
    text: str
    document: dict[str, object]


def compose(message: Message, described: Sequence[DescribedNotice]) -> Composed:
    """Return a message; `described` are its first notices, at most `MAX_LISTED`."""
    line = " ".join(summary(message.notices).split())
    more = len(message.notices) - len(described)
    texts = [_text_of(each) for each in described]
    if more:
        texts.append(f"and {more} more")
    document = {
        "id": message.id,
        "summary": line,
        "count": len(message.notices),
        "events": [_document_of(each) for each in described],
        "more": more,
    }
    subject = line if len(line) <= MAX_SUBJECT else f"{line[: MAX_SUBJECT - 3]}..."
    lines = texts if len(message.notices) == 1 else [line, *texts]
    return Composed(message.id, subject, "\n\n".join(lines), document)


def _text_of(described: DescribedNotice) -> str:
    notice = described.notice
    lines = [headline(notice), f"  period {rfc3339(notice.nominal_time)}"]
    return "\n".join([*lines, *(f"  - {sentence}" for sentence in described.why)])


def _document_of(described: DescribedNotice) -> dict[str, object]:
    notice = described.notice
    return {
        "id": notice.id,
        "event": notice.event.value,
        "schedule_id": notice.identity,
        "period_id": rfc3339(notice.nominal_time),
        "periods": notice.periods,
        "idempotency_key": notice.key,
        "at": instant_text(notice.created_at),
        "sentence": headline(notice),
        "why": list(described.why),
    }
