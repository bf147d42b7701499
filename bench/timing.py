"""Fair timing: contenders run in turn, and the median of the rounds counts."""

import gc
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import fmean, median
from time import perf_counter
from typing import TypeAlias

from bench.row import Kind, Row, Say

# The seconds per call by label; ALL is the main figure.
Sample: TypeAlias = Mapping[str, float]
ALL = "all"

_PATH = re.compile(r"(?<![\w*])/[^\s'\",)]+")


@dataclass(slots=True, kw_only=True)
class Series:
    """The measurements of one contender, or the failure that prevented them."""

    samples: list[Sample] = field(default_factory=list)
    failure: str | None = None


@contextmanager
def without_collector() -> Iterator[None]:
    """Disable the garbage collector during a measurement, as `timeit` does."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def seconds_of(work: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    begin = perf_counter()
    work()
    return perf_counter() - begin


def repeated(measure: Callable[[], Sample], *, least: float) -> Sample:
    """Repeat a measurement for at least `least` seconds, to average out interruptions; return the means."""
    begin = perf_counter()
    samples = [measure()]
    while perf_counter() - begin < least:
        samples.append(measure())
    return {label: fmean(sample[label] for sample in samples) for label in samples[0]}


def round_robin(
    contenders: Mapping[str, Callable[[], Sample]], *, repetitions: int, say: Say, warm_up: bool = True
) -> dict[str, Series]:
    """Measure all contenders in turn, so that noise affects them equally; the first round may be warm-up."""
    series = {name: Series() for name in contenders}
    for repetition in range(0 if warm_up else 1, repetitions + 1):
        say(f"round {repetition} of {repetitions}" if repetition else "warming up")
        for name, measure in contenders.items():
            found = series[name]
            if found.failure is None:
                _take_turn(found, measure, counts=repetition > 0)
    return series


def _take_turn(series: Series, measure: Callable[[], Sample], *, counts: bool) -> None:
    try:
        with without_collector():
            sample = measure()
    except Exception as error:  # noqa: BLE001 (a failing peer is a missing row)
        series.failure = failure_of(error)
        return
    if counts:
        series.samples.append(sample)


def joined(parts: Mapping[str, Series]) -> Series:
    """Combine several series into one; all parts have the same weight."""
    failures = [part.failure for part in parts.values() if part.failure]
    if failures:
        return Series(failure=failures[0])
    rounds = zip(*(part.samples for part in parts.values()), strict=True)
    samples = [dict(zip(parts, (sample[ALL] for sample in found), strict=True)) for found in rounds]
    return Series(samples=[sample | {ALL: fmean(sample.values())} for sample in samples])


def failure_of(error: Exception) -> str:
    """Return in one line, without local paths, why a contender has no figure."""
    lines = str(error).splitlines()
    reason = _PATH.sub("...", lines[0]) if lines else "no message"
    return f"failed: {type(error).__name__}: {reason}"


def rows_of(
    title: str,
    kind: Kind,
    series: Mapping[str, Series],
    *,
    reference: str,
    notes: Mapping[str, str] | None = None,
) -> list[Row]:
    """Convert series to rows; ratios are medians of the ratios within each round."""
    return [
        _row_of(title, kind, name, found, against=series[reference], note=(notes or {}).get(name, ""))
        for name, found in series.items()
    ]


def _row_of(title: str, kind: Kind, name: str, found: Series, *, against: Series, note: str) -> Row:
    if found.failure is not None:
        return Row(title=title, contender=name, kind=kind, note=found.failure)
    labels = [label for label in found.samples[0] if label != ALL]
    details: dict[str, float | int | str] = {f"{label} seconds": _middle(found, label) for label in labels}
    if against.failure is None:
        details |= {f"{label} ratio": ratio_of(found.samples, against.samples, label) for label in labels}
    costs = [sample[ALL] for sample in found.samples]
    return Row(
        title=title,
        contender=name,
        kind=kind,
        cost=median(costs),
        ratio=None if against.failure else ratio_of(found.samples, against.samples, ALL),
        note=note,
        details=details | {"least seconds": min(costs), "most seconds": max(costs)},
    )


def ratio_of(samples: Sequence[Sample], against: Sequence[Sample], label: str) -> float:
    """Return the median over the rounds of one cost divided by the other."""
    return median(one[label] / other[label] for one, other in zip(samples, against, strict=True))


def _middle(series: Series, label: str) -> float:
    return median(sample[label] for sample in series.samples)
