"""The decisions part: the rate of decisions, and the time to simulate a fleet."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median

from bench.goal import at_least, at_most
from bench.row import Findings, Goal, Kind, Row, Say
from bench.timing import ALL, Sample, repeated, round_robin, rows_of, seconds_of, without_collector
from kron.core.job.decision import decide_at
from kron.core.job.job import Job
from kron.core.job.load import FleetLoad, load_of
from kron.core.time.instant import DAY

FREE = "decisions"
BOUND = "decisions, ten minutes of the hour forbidden"
SIMULATION = "simulation"

START = 1_772_323_200  # 2026-03-01T00:00:00Z
REPETITIONS = 5
JOBS = 1_000
# No peer has comparable figures; the goals are absolute.
LEAST_RATE = 100_000
MOST_SECONDS = 15.0

DISTRIBUTIONS: Mapping[str, Mapping[str, object]] = {
    "uniform": {"name": "uniform"},
    "skewEarly": {"name": "skewEarly", "shape": 2.5},
    "skewLate": {"name": "skewLate", "shape": 2.5},
    "normal": {"name": "normal"},
    "exponential": {"name": "exponential", "lambda": 3},
}
# Two constraints per candidate. The window is 01:00 to 02:00 in winter and an hour later in summer,
# so ten of its sixty minutes are forbidden all year.
CONSTRAINTS = {"only": {"months": [*range(1, 13)]}, "avoid": {"between": ["01:20-01:29", "02:20-02:29"]}}

# A mix: six jobs in ten are hourly or more frequent, and one in four has no window.
SCHEDULES = (
    "*/5 * * * *", "*/15 * * * *", "0 * * * *", "0 * * * *", "30 * * * *", "H * * * *",
    "0 0 * * *", "0 2 * * *", "0 3 * * 1", "0 6 * * 1-5",
)  # fmt: skip
ZONES = ("UTC", "Europe/Berlin", "America/New_York")


def run(say: Say, *, quick: bool) -> Findings:
    """Measure single decisions and whole fleets."""
    count, days = (500, 3) if quick else (2_000, 30)
    rows = [*_decisions(FREE, {}, count, say), *_decisions(BOUND, CONSTRAINTS, count, say)]
    rows += _simulation(days, 1 if quick else 3, say)
    return Findings(rows=tuple(rows), goals=tuple(_goals(rows, days)))


def _decisions(title: str, constraints: Mapping[str, object], count: int, say: Say) -> list[Row]:
    """Measure the decisions of a daily job: hash, sample, constraints, and the resulting value."""
    jobs = {
        name: Job.from_dict(
            {
                "identity": "bench/job",
                "schedule": "0 0 * * *",
                "timezone": "Europe/Berlin",
                "window": {"mode": "after", "duration": "1h"},
                "distribution": distribution,
                "constraints": constraints,
            }
        )
        for name, distribution in DISTRIBUTIONS.items()
    }
    measures = {name: partial(repeated, partial(_time, job, count), least=0.05) for name, job in jobs.items()}
    series = round_robin(measures, repetitions=REPETITIONS, say=lambda text: say(f"{title}: {text}"))
    rows = rows_of(title, Kind.RATE, series, reference="uniform")
    # The distributions are not contenders: their relative costs are not a comparison with peers.
    return [replace(row, ratio=None) for row in rows]


def _time(job: Job, count: int) -> Sample:
    def work() -> None:
        for nominal_time in range(START, START + count * DAY, DAY):
            decide_at(job, nominal_time)

    return {ALL: seconds_of(work) / count}


def fleet() -> list[Job]:
    """Return a thousand jobs of all kinds."""
    distributions = list(DISTRIBUTIONS.values())
    return [
        Job.from_dict(
            {
                "identity": f"bench/{number}",
                "schedule": SCHEDULES[number % len(SCHEDULES)],
                "timezone": ZONES[number % len(ZONES)],
                "distribution": distributions[number % len(distributions)],
                "window": {"mode": "after", "duration": "4m" if number % 4 else "0s"},
                "constraints": {"avoid": {"between": ["12:00-12:30"]}} if number % 7 == 0 else {},
            }
        )
        for number in range(JOBS)
    ]


def _simulation(days: int, rounds: int, say: Say) -> list[Row]:
    jobs = fleet()
    loads: list[FleetLoad] = []
    times: list[float] = []
    for number in range(rounds):
        say(f"{SIMULATION}: round {number + 1} of {rounds}")
        with without_collector():
            times.append(seconds_of(lambda: loads.append(load_of(jobs, START, START + days * DAY))))
    load = loads[-1]
    seconds = median(times)
    return [
        Row(
            title=SIMULATION,
            contender=f"{JOBS:,} jobs over {days} days",
            kind=Kind.TIME,
            cost=seconds,
            note=f"{load.decided.starts:,} starts, {load.decided.starts / seconds / 1000:,.0f} k/s; "
            f"peak {load.decided.peak} with windows, {load.nominal.peak} without",
            details={"starts": load.decided.starts, "least seconds": min(times), "most seconds": max(times)},
        )
    ]


def _goals(rows: Sequence[Row], days: int) -> Iterator[Goal]:
    for title in (FREE, BOUND):
        slowest = max((row.cost for row in rows if row.title == title and row.cost), default=None)
        yield at_least(f"{title}, the slowest distribution", LEAST_RATE, slowest)
    (row,) = (row for row in rows if row.title == SIMULATION)
    what = f"{SIMULATION}, {JOBS:,} jobs over 30 days"
    yield at_most(what, MOST_SECONDS, row.cost if days == 30 else None)
