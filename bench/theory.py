"""The theory part: the time to check a trace of a million events."""

import json
from collections.abc import Iterator
from itertools import count, islice
from time import process_time

from bench.row import Findings, Goal, Kind, Row, Say, shown
from bench.timing import without_collector
from kron.theory import Trace, Witnesses, check

TITLE = "trace checking"
WRITTEN = "{events} events, {tasks} tasks"
DERIVED = "{events} events, {tasks} tasks, pulses derived"
EVENTS = 1_000_000
QUICK = 20_000
TASKS = 100
# No peer has a comparable figure; the goal is absolute.
MOST_SECONDS = 30.0
GENEROUS = Witnesses(a=1_000, b=1_000, t_lag=0)


def run(say: Say, *, quick: bool) -> Findings:
    """Check a conforming trace with Compute events, and one whose pulses the checker derives."""
    events = QUICK if quick else EVENTS
    rows = [_measure(say, events, derived=False), _measure(say, events, derived=True)]
    worst = max(row.cost or 0.0 for row in rows)
    goal = Goal(
        what=f"{TITLE}, 1 M events, processor time",
        wanted=f"<= {shown(Kind.TIME, MOST_SECONDS)}",
        measured="not measured" if quick else shown(Kind.TIME, worst),
        met=None if quick else worst <= MOST_SECONDS,
    )
    return Findings(rows=tuple(rows), goals=(goal,))


def _measure(say: Say, events: int, *, derived: bool) -> Row:
    name = (DERIVED if derived else WRITTEN).format(
        events="1 M" if events == EVENTS else f"{events:,}", tasks=TASKS
    )
    say(f"{TITLE}: {name}")
    lines = list(trace_lines(events, TASKS, derived=derived))
    with without_collector():
        # One thread that never waits: its processor time is its time on an idle machine.
        begin = process_time()
        # An iterator, not a list: the trace is judged while it is read, like a file.
        report = check(Trace.from_jsonl(iter(lines)), None if derived else GENEROUS)
        seconds = process_time() - begin
    note = f"{events / seconds / 1000:,.0f} k events/s of processor time; {report.verdict}"
    return Row(title=TITLE, contender=name, kind=Kind.TIME, cost=seconds, note=note)


def trace_lines(events: int, tasks: int, *, derived: bool) -> Iterator[str]:
    """Yield the header and events of a conforming run: every task once a minute, a restart each hour."""
    header: dict[str, object] = {"kron_trace": 1, "unit": "ms"}
    if derived:
        header |= {"derive": ["MinuteStart", "Due", "RetryDue"], "timezone": "UTC", "compute": "none"}
    yield json.dumps(header)
    lawful = _lawful(tasks, derived=derived)
    yield from map(json.dumps, islice(lawful, events))


def _lawful(tasks: int, *, derived: bool) -> Iterator[dict[str, object]]:
    names = [f"task-{number}" for number in range(tasks)]
    registered = [{"id": name, "schedule": "* * * * *", "retry_delay": 1_000} for name in names]
    position = count()

    def act(t: int, event: str, **fields: object) -> Iterator[dict[str, object]]:
        i = next(position)
        if not derived:
            yield {"i": i, "t": t, "event": "Compute"}
        yield {"i": i, "t": t, "event": event, **fields}

    def pulse(t: int, events: list[dict[str, object]]) -> Iterator[dict[str, object]]:
        i = next(position)
        yield from ({"i": i, "t": t, **event} for event in events if not derived)

    for minute in count():
        start = 60_000 * minute
        due: list[dict[str, object]] = [{"event": "Due", "task": name} for name in names if minute]
        yield from pulse(start, [{"event": "MinuteStart"}, *due])
        if minute % 60 == 0:
            if minute:
                yield from act(start + 1, "StopStart", call=f"stop-{minute}")
                yield from act(start + 2, "StopEnd", call=f"stop-{minute}")
            call = f"init-{minute}"
            yield from act(start + 3, "InitStart", call=call, list="all", tasks=registered)
            yield from act(start + 4, "InitSuccess", call=call, list="all")
        failed = []
        for number, name in enumerate(names if minute else ()):
            fails = (minute + number) % 50 == 0
            failed += [name] if fails else []
            yield from act(start + 10 + 2 * number, "RunStart", task=name)
            yield from act(start + 11 + 2 * number, "RunFailure" if fails else "RunSuccess", task=name)
        for number, name in enumerate(failed):
            t = start + 30_000 + 2 * number
            yield from pulse(t, [{"event": "RetryDue", "task": name}])
            yield from act(t, "RunStart", task=name)
            yield from act(t + 1, "RunSuccess", task=name)
