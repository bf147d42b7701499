"""The field `notify` of a definition: what is read, refused, written back and shown."""

from datetime import timedelta

import pytest

from kron.core.errors import InvalidJobError
from kron.core.job.job import Job
from kron.core.job.notify import Notify, NotifyEvent, shown_target

SECRET = "T0/B0/very-secret"


def job_with(notify: object) -> Job:
    return Job.from_dict({"identity": "a", "schedule": "* * * * *", "notify": notify})


def test_a_definition_with_notifications_is_read_and_written_back() -> None:
    document = {
        "to": ["ops", f"slack+https://hooks.example/{SECRET}"],
        "on": ["failed", "late"],
        "late_after": "5m",
        "heartbeat": "https://hc.example/uuid",
    }
    job = job_with(document)
    assert job.notify is not None
    assert job.notify.on == (NotifyEvent.FAILED, NotifyEvent.LATE)
    assert job.notify.late_after == timedelta(minutes=5)
    assert job.to_dict()["notify"] == document
    assert Job.from_dict(job.to_dict()) == job
    assert "notify" not in Job.from_dict({"identity": "a", "schedule": "* * * * *"}).to_dict()


def test_one_target_and_one_event_need_no_list_and_null_is_the_default() -> None:
    job = job_with({"to": "ops", "on": "missed", "late_after": None})
    assert job.notify == Notify(to=("ops",), on=(NotifyEvent.MISSED,))
    assert job_with(None).notify is None


@pytest.mark.parametrize(
    ("notify", "problem"),
    [
        ({"on": ["fail"]}, 'notify.on "[fail]": did you mean failed?'),
        ({"to": f"ftp://hooks.example/{SECRET}"}, "notify.to: must be an address such as https://"),
        ({"heartbeat": f"https://hc.example/{SECRET}#x"}, "notify.heartbeat: must be an address"),
        ({"to": ["a\nb"]}, "notify.to: must be the name of a channel"),
        ({"to": ["x"] * 21}, "notify.to: has more than 20 values"),
        ({"late_after": "-1s"}, 'notify.late_after "-1s": must not be negative'),
        ({"email": "a@b"}, "notify.email: unknown field; use to, on, late_after, heartbeat"),
    ],
)
def test_what_cannot_be_sent_is_refused_without_quoting_a_url(notify: object, problem: str) -> None:
    with pytest.raises(InvalidJobError) as refused:
        job_with(notify)
    assert problem in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_redacted_url_stands_for_the_stored_one_with_the_same_host() -> None:
    stored = Notify(to=("ops", f"https://h.example/{SECRET}"), heartbeat=f"https://hc.example/{SECRET}")
    shown = job_with({**stored.redacted(), "on": "late"}).notify
    assert shown is not None
    assert shown.hidden() == ["to", "heartbeat"]
    assert shown.revealed(stored) == Notify(to=stored.to, heartbeat=stored.heartbeat, on=(NotifyEvent.LATE,))
    elsewhere = Notify(to=("https://other.example/***",))
    assert elsewhere.revealed(stored).hidden() == ["to"]


def test_of_a_url_only_the_host_is_shown() -> None:
    assert shown_target(f"slack+https://user:pw@hooks.example:8443/{SECRET}?t=1") == (
        "slack+https://hooks.example:8443/***"
    )
    assert shown_target("ops") == "ops"
    job = job_with(
        {"to": [f"https://h.example/{SECRET}", "ops"], "heartbeat": f"https://hc.example/{SECRET}"}
    )
    assert job.notify is not None
    assert job.notify.redacted() == {
        "to": ["https://h.example/***", "ops"],
        "heartbeat": "https://hc.example/***",
    }
