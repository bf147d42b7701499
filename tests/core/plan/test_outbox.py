"""The outbox: what is sent together, in which order, how often, and what is given up."""

from kron.core.plan.outbox import MAX_GROUP, Queue, SendLimits, read_outbox
from kron.core.plan.record import NoticeEvent, NoticeRecord, NoticeState

NOW = 1_800_000_000_000
LIMITS = SendLimits(wait_ms=10_000, interval_ms=60_000, max_age_ms=3_600_000, max_ping_age_ms=600_000)
OPS = Queue("ops", is_ping=False)


def a_notice(number: int, target: str = "ops", at: int = NOW, **fields: object) -> NoticeRecord:
    notice = NoticeRecord(f"n{number}", "a", NoticeEvent.FAILED, target, 0, "k", at, due_at=at, number=number)
    return notice._replace(**fields)  # type: ignore[arg-type]


def read(
    *pending: NoticeRecord, now: int, sent_at: dict[Queue, int] | None = None, busy: tuple[Queue, ...] = ()
) -> tuple[list[tuple[str, list[str]]], int | None]:
    outbox = read_outbox(pending, sent_at=sent_at or {}, busy=busy, limits=LIMITS, now=now)
    assert outbox.expired == []
    messages = [(message.id, [notice.id for notice in message.notices]) for message in outbox.messages]
    return messages, outbox.wake_at


def test_notices_of_owners_who_are_apart_are_never_one_message() -> None:
    pending = [a_notice(number, identity=f"{'ann' if number % 2 else 'bob'}/x") for number in range(4)]
    pending[1] = pending[1]._replace(batch="n1", tries=1, due_at=NOW + 60_000)
    outbox = read_outbox(
        pending,
        sent_at={},
        busy=(),
        limits=LIMITS,
        now=NOW + 10_000,
        owner_of=lambda name: name.partition("/")[0],
    )
    # The retry of one of Ann's delays hers, and none of Bob's.
    assert [[notice.id for notice in message.notices] for message in outbox.messages] == [["n0", "n2"]]
    assert outbox.wake_at == NOW + 60_000


def test_notices_wait_for_others_and_are_sent_as_one_message() -> None:
    first, later = a_notice(1), a_notice(2, at=NOW + 9_000)
    assert read(first, now=NOW) == ([], NOW + 10_000)
    assert read(first, later, now=NOW + 9_999) == ([], NOW + 10_000)
    assert read(first, later, now=NOW + 10_000) == ([("n1", ["n1", "n2"])], None)


def test_a_hundred_failures_in_a_minute_are_one_message() -> None:
    many = [a_notice(number, at=NOW + 90 * number) for number in range(100)]
    ((_, names),), wake_at = read(*many, now=NOW + 10_000)
    assert (len(names), wake_at) == (100, None)


def test_the_next_message_to_a_target_waits_for_its_interval_and_other_targets_do_not() -> None:
    sent_at = {OPS: NOW}
    second, other = a_notice(2, at=NOW + 1_000), a_notice(3, "mail", at=NOW + 1_000)
    assert read(second, other, now=NOW + 11_000, sent_at=sent_at) == ([("n3", ["n3"])], NOW + 60_000)
    assert read(second, now=NOW + 60_000, sent_at=sent_at) == ([("n2", ["n2"])], None)


def test_a_message_that_is_tried_again_keeps_its_id_and_its_notices() -> None:
    (message,) = read_outbox(
        [a_notice(1), a_notice(2)], sent_at={}, busy=(), limits=LIMITS, now=NOW + 10_000
    )[0]
    failed = [notice._replace(due_at=NOW + 15_000) for notice in message.claimed()]
    assert [(notice.batch, notice.tries) for notice in failed] == [("n1", 1), ("n1", 1)]
    fresh = a_notice(3, at=NOW + 1_000)
    assert read(*failed, fresh, now=NOW + 14_999) == ([], NOW + 15_000)
    assert read(*failed, fresh, now=NOW + 15_000, sent_at={OPS: NOW + 10_000}) == (
        [("n1", ["n1", "n2"])],
        None,
    )
    assert read(*failed, fresh, now=NOW + 15_000, busy=(OPS,)) == ([], None)


def test_pings_go_one_by_one_in_order_without_waiting() -> None:
    url = "https://hc.example/abc"
    pings = [
        a_notice(number, url, event=event)
        for number, event in enumerate((NoticeEvent.PING_START, NoticeEvent.PING_SUCCESS), 1)
    ]
    assert read(*pings, now=NOW) == ([("n1", ["n1"])], None)
    assert read(pings[1], a_notice(3, url), now=NOW) == ([("n2", ["n2"])], NOW + 10_000)
    retried = pings[0]._replace(due_at=NOW + 500)
    assert read(retried, pings[1], now=NOW) == ([], NOW + 500)


def test_what_cannot_be_sent_in_time_is_given_up_with_its_last_error() -> None:
    ping = a_notice(1, "https://hc.example", event=NoticeEvent.PING_START)
    old, fresh = a_notice(2, error="refused"), a_notice(3, at=NOW + 3_600_000)
    outbox = read_outbox([ping, old, fresh], sent_at={}, busy=(), limits=LIMITS, now=NOW + 3_600_000)
    assert [(notice.id, notice.state) for notice in outbox.expired] == [
        ("n1", NoticeState.FAILED),
        ("n2", NoticeState.FAILED),
    ]
    assert outbox.expired[1].error == "given up: it could not be sent in time: refused"
    assert outbox.messages == []


def test_a_message_has_a_bounded_number_of_notices() -> None:
    many = [a_notice(number) for number in range(MAX_GROUP + 5)]
    ((_, names),), _ = read(*many, now=NOW + 10_000)
    assert len(names) == MAX_GROUP
