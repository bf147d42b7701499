"""Traces in a short notation: `trace("IS IEs Due RS REs")`.

A word is one position at a time of its own, counted from zero; events joined by `+` share it. After an
event may stand `:task` (or a phenomenon), `#call`, `=list`, `~schedule` and `@time`, in this order; a
time holds for what follows, each a unit later. Without them the task is `a`, the list is `A`, a call is
new where it begins and the latest where it ends.
"""

import json
import re

from kron.theory import Trace

KINDS = {
    "IS": "InitStart",
    "IEs": "InitSuccess",
    "IEf": "InitFailure",
    "SS": "StopStart",
    "SE": "StopEnd",
    "RS": "RunStart",
    "REs": "RunSuccess",
    "REf": "RunFailure",
    "Crash": "UnexpectedShutdown",
    "Min": "MinuteStart",
    "Due": "Due",
    "RetryDue": "RetryDue",
    "C": "Compute",
    "Sup": "Supernatural",
}
EVERY = "* * * * *"
LISTS: dict[str, list[tuple[str, str, int]]] = {
    "A": [("a", EVERY, 5)],
    "AB": [("a", EVERY, 5), ("b", EVERY, 5)],
    "A2": [("a", "0 * * * *", 5)],
    "SLOW": [("a", EVERY, 500)],
    "NOW": [("a", EVERY, 0)],
    "NONE": [],
    "TWICE": [("a", EVERY, 5), ("a", "0 * * * *", 5)],
    "BAD": [("a", "not cron", 5)],
    "NEGATIVE": [("a", EVERY, -1)],
}
_WORD = re.compile(r"(\w+?)(?::([\w-]+))?(?:#(\w+))?(?:=(\w+))?(?:~([\w*,]+))?(?:@(\d+))?")


def trace(text: str, **header: object) -> Trace:
    """Return the trace that a notation stands for; without a word on compute it has none."""
    return Trace.from_jsonl(lines_of(text, **header))


def computed(text: str, **header: object) -> Trace:
    """Return a trace in which every action has its Compute, and `C` more of it."""
    words = [word if _passive(word) else f"C+{word}" for word in text.split()]
    return Trace.from_jsonl(lines_of(" ".join(words), compute=None, **header))


def _passive(word: str) -> bool:
    return re.split(r"[:#=~@+]", word)[0] in ("C", "Crash", "Min", "Due", "RetryDue", "Sup")


def lines_of(text: str, **header: object) -> list[str]:
    """Return the lines of a trace in this notation."""
    head = {"kron_trace": 1, "unit": "s", "compute": "none"} | header
    lines = [json.dumps({name: value for name, value in head.items() if value is not None})]
    state: dict[str, object] = {"IS": 0, "SS": 0}
    t = -1
    for i, word in enumerate(text.split()):
        t += 1
        for part in word.split("+"):
            found = _WORD.fullmatch(part)
            assert found, part
            kind, subject, call, label, schedule, at = found.groups()
            t = t if at is None else int(at)
            event: dict[str, object] = {"i": i, "t": t, "event": KINDS[kind]}
            event |= _fields(kind, subject, call, label, state)
            if schedule is not None:
                event["schedule"] = " ".join([schedule, *"****"])
            lines.append(json.dumps(event))
    return lines


def _fields(
    kind: str, subject: str | None, call: str | None, label: str | None, state: dict[str, object]
) -> dict[str, object]:
    if kind in ("RS", "REs", "REf", "Due", "RetryDue"):
        return {"task": subject or "a"}
    if kind == "Sup":
        return {"kind": subject}
    if kind in ("IS", "SS"):
        count = state["count"] = int(str(state.get("count", 0))) + 1
        state[kind] = call or f"{kind}{count}"
    if kind == "IS":
        tasks = [
            dict(zip(("id", "schedule", "retry_delay"), task, strict=True)) for task in LISTS[label or "A"]
        ]
        return {"call": state["IS"], "list": label or "A", "tasks": tasks}
    if kind in ("IEs", "IEf", "SS", "SE"):
        fields: dict[str, object] = {"call": call or state["IS" if kind[0] == "I" else "SS"]}
        return fields | ({} if label is None else {"list": label})
    return {}
