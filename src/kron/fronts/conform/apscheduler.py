"""APScheduler 3 as a trace: a listener that writes its events for `kron conform`.

    with open("trace.jsonl", "w") as file:
        recorder = Recorder({"report": "0 9 * * *"}, write=file.write, now=SystemClock().now)
        recorder.attach(scheduler)
        scheduler.start()

The intended schedule of each job is given as a strict cron expression, whatever trigger it has: the checker
derives the dues from it. APScheduler has no retries, so a task's delay is longer than any trace. A run
that it reports as missed appears as a failed start, since it was submitted before. It reports a start after
the fact, sometimes after its end: then both are written when the end is reported.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from json import dumps
from threading import Lock

from apscheduler.events import (
    EVENT_JOB_ERROR,
    EVENT_JOB_EXECUTED,
    EVENT_JOB_MISSED,
    EVENT_JOB_SUBMITTED,
    EVENT_SCHEDULER_SHUTDOWN,
    EVENT_SCHEDULER_STARTED,
    SchedulerEvent,
)
from apscheduler.schedulers.base import BaseScheduler

from kron.core.time.instant import milliseconds_of
from kron.theory.event import Event, Kind, Task, TaskList, is_valid
from kron.theory.header import Header
from kron.theory.trace import line_of

# Longer than any trace, in milliseconds: a thousand years.
NO_RETRY = 1_000 * 366 * 86_400_000

_ENDS = {
    EVENT_JOB_EXECUTED: Kind.RUN_SUCCESS,
    EVENT_JOB_ERROR: Kind.RUN_FAILURE,
    EVENT_JOB_MISSED: Kind.RUN_FAILURE,
}
_MASK = (
    EVENT_SCHEDULER_STARTED
    | EVENT_SCHEDULER_SHUTDOWN
    | EVENT_JOB_SUBMITTED
    | EVENT_JOB_EXECUTED
    | EVENT_JOB_ERROR
    | EVENT_JOB_MISSED
)


class Recorder:
    """Writes the events of a scheduler as the lines of a trace, in order.

    `schedules` has the intended schedule of each job id, in `timezone`; other jobs are ignored.
    `now` returns the time of an event.
    """

    def __init__(
        self,
        schedules: Mapping[str, str],
        *,
        write: Callable[[str], object],
        now: Callable[[], datetime],
        timezone: str = "UTC",
    ) -> None:
        tasks = tuple(Task(name, text, NO_RETRY) for name, text in schedules.items())
        self._tasks = TaskList(label="jobs", tasks=tasks, valid=is_valid(tasks))
        self._write = write
        self._now = now
        self._calls = 0
        # By job and time: the started runs with their following ones; the ends reported before their starts.
        self._runs: dict[tuple[str, datetime], list[datetime]] = {}
        self._early: set[tuple[str, datetime]] = set()
        self._last: int | None = None
        # Events come from the threads of the scheduler and of its executors.
        self._lock = Lock()
        derive = frozenset({Kind.MINUTE_START, Kind.DUE})
        header = Header(unit="ms", derive=derive, timezone=timezone, computed=False)
        self._write(dumps(header.to_dict()) + "\n")

    def attach(self, scheduler: BaseScheduler) -> None:
        """Add the listener to a scheduler; do this before it is started."""
        scheduler.add_listener(self.note, _MASK)

    def note(self, event: SchedulerEvent) -> None:
        """Write one event of the scheduler."""
        with self._lock:
            if event.code == EVENT_SCHEDULER_STARTED:
                self._call(Kind.INIT_START, Kind.INIT_SUCCESS, self._tasks)
            elif event.code == EVENT_SCHEDULER_SHUTDOWN:
                self._call(Kind.STOP_START, Kind.STOP_END, None)
            elif event.job_id not in self._tasks.by_id:
                return
            elif event.code == EVENT_JOB_SUBMITTED:
                self._start(event.job_id, list(event.scheduled_run_times))
            else:
                self._end(_ENDS[event.code], event.job_id, event.scheduled_run_time)

    def _start(self, name: str, times: list[datetime]) -> None:
        """Write the start of a submission; each of its further runs starts where the previous one ends."""
        times = [time for time in times if not self._was_early((name, time))]
        if times:
            self._add(Event(Kind.RUN_START, task=name))
            self._runs[name, times[0]] = times[1:]

    def _end(self, kind: Kind, name: str, time: datetime) -> None:
        following = self._runs.pop((name, time), None)
        if following is None:
            self._early.add((name, time))
            self._add(Event(Kind.RUN_START, task=name))
        self._add(Event(kind, task=name))
        self._start(name, following or [])

    def _was_early(self, run: tuple[str, datetime]) -> bool:
        early = run in self._early
        self._early.discard(run)
        return early

    def _call(self, start: Kind, end: Kind, tasks: TaskList | None) -> None:
        """Write a call; APScheduler reports only that a call was made, not how long it took."""
        self._calls += 1
        for kind in (start, end):
            self._add(Event(kind, call=self._calls, tasks=tasks))

    def _add(self, event: Event) -> None:
        t = milliseconds_of(self._now())
        self._last = t if self._last is None else max(t, self._last)
        self._write(line_of(event, t=self._last) + "\n")
