"""Write tests/golden/decisions.json: decisions that do not change until the next major version.

    python tools/golden.py            add new cases; refuse if a recorded decision would change
    python tools/golden.py --major    rewrite every case: only for a new major version

Each entry has a name, the job, the nominal time and the certificate; `kron verify` reads the file too.
The times lie in the past, where no new release of the time zone database is likely to change them.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from kron.core.job.decision import decide
from kron.core.job.job import Job

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "tests" / "golden" / "decisions.json"

Definition = dict[str, object]
HOUR = {"mode": "after", "duration": "1h"}
DAY = {"mode": "after", "duration": "24h"}
SPRING, AUTUMN = "2025-03-30T00:30:00Z", "2025-10-26T00:30:00Z"  # Berlin's clocks change half an hour later
HOLIDAYS = {"holidays": ["2024-12-24..2024-12-26", "2025-01-01"]}


def job(identity: str, **fields: object) -> Definition:
    return {"identity": identity, "schedule": "0 0 * * *", **fields}


def cases() -> Iterator[tuple[str, Definition, str]]:
    """Yield every case: its name, its job and its nominal time."""
    yield from distributions()
    yield from windows()
    yield from zones()
    yield from weeks_and_years()
    yield from constraints()
    yield from names()


def distributions() -> Iterator[tuple[str, Definition, str]]:
    plain: list[tuple[str, Definition]] = [
        ("uniform", {"name": "uniform"}),
        ("skewEarly", {"name": "skewEarly"}),
        ("skewEarly flat", {"name": "skewEarly", "shape": 0.5}),
        ("skewEarly steep", {"name": "skewEarly", "shape": 17.25}),
        ("skewLate", {"name": "skewLate"}),
        ("skewLate flat", {"name": "skewLate", "shape": 0.1}),
        ("skewLate steep", {"name": "skewLate", "shape": 2.5}),
        ("exponential", {"name": "exponential"}),
        ("exponential flat", {"name": "exponential", "lambda": 0.01}),
        ("exponential steep", {"name": "exponential", "lambda": 40}),
        ("exponential late", {"name": "exponential", "lambda": 3.5, "dir": "late"}),
        ("normal", {"name": "normal"}),
        ("normal wide", {"name": "normal", "sigma": "10h"}),
        ("normal narrow", {"name": "normal", "sigma": "1m30s"}),
        ("normal fraction", {"name": "normal", "sigma": "0.75s"}),
        ("normal needle", {"name": "normal", "mu": "end", "sigma": "0.000001s"}),
    ]
    for name, distribution in plain:
        for day in (1, 2, 3):
            window = {"mode": "after", "duration": "3h"}
            made = job(f"golden/{name}", window=window, distribution=distribution)
            yield f"{name}, day {day}", made, f"2025-01-0{day}T12:00:00Z"
    for mode in ("after", "before", "around"):
        for mu in ("nominal", "start", "mid", "end"):
            window = {"mode": mode, "duration": "2h"}
            made = job("golden/mu", window=window, distribution={"name": "normal", "mu": mu, "sigma": "20m"})
            yield f"normal {mode} with its peak at {mu}", made, "2025-02-03T04:05:00Z"
        made = job("golden/mu", window={"mode": mode, "duration": "2h"}, distribution={"name": "normal"})
        yield f"normal {mode} with its own peak", made, "2025-02-03T04:05:00Z"


def windows() -> Iterator[tuple[str, Definition, str]]:
    lengths = (
        "0s",
        "0.000001s",
        "0.5s",
        "0.999999s",
        "1s",
        "1.000001s",
        "1.5s",
        "1.999999s",
        "2.5s",
        "3s",
        "1h1m1s",
        "999h",
    )
    for mode in ("after", "before", "around"):
        for length in lengths:
            window = {"mode": mode, "duration": length}
            yield f"{mode} {length}", job("golden/window", window=window), "2025-05-06T07:08:09Z"
    yield (
        "center is around",
        job("golden/window", window={"mode": "center", "duration": "3s"}),
        "2025-05-06T07:08:09Z",
    )
    yield "no window at all", job("golden/window"), "2025-05-06T07:08:09Z"


def zones() -> Iterator[tuple[str, Definition, str]]:
    keys = (
        "UTC", "Europe/Berlin", "America/New_York", "America/St_Johns", "Asia/Kolkata", "Asia/Kathmandu",
        "Australia/Lord_Howe", "Pacific/Chatham", "Pacific/Kiritimati", "Pacific/Pago_Pago",
    )  # fmt: skip
    for key in keys:
        for strategy in ("daily", "weekly"):
            made = job("golden/zone", timezone=key, window=DAY, seed={"strategy": strategy})
            yield f"{strategy} in {key}", made, "2024-03-31T23:15:00Z"
        made = job(
            "golden/zone", timezone=key, window=DAY, constraints={"only": {"between": ["06:00-08:59"]}}
        )
        yield f"mornings in {key}", made, "2024-06-30T23:15:00Z"
    berlin = {"timezone": "Europe/Berlin", "window": {"mode": "around", "duration": "3h"}}
    for name, at in (
        ("clocks forward", SPRING),
        ("clocks back", AUTUMN),
        ("repeated hour", "2025-10-26T01:30:00Z"),
    ):
        yield name, job("golden/dst", **berlin), at
        yield f"{name}, daily", job("golden/dst", **berlin, seed={"strategy": "daily"}), at
        for hour in (1, 2, 3):
            yield (
                f"{name}, only hour {hour}",
                job("golden/dst", **berlin, constraints={"only": {"hours": [hour]}}),
                at,
            )
    apia = {"timezone": "Pacific/Apia", "window": {"mode": "after", "duration": "72h"}}
    made = job("golden/apia", **apia, constraints={"only": {"dates": ["2011-12-30"]}})
    yield "a day that never was", made, "2011-12-29T12:00:00Z"
    yield (
        "a day before the missing one",
        job("golden/apia", **apia, seed={"strategy": "daily"}),
        "2011-12-30T09:59:59Z",
    )
    yield (
        "a day after the missing one",
        job("golden/apia", **apia, seed={"strategy": "daily"}),
        "2011-12-30T10:00:00Z",
    )


def weeks_and_years() -> Iterator[tuple[str, Definition, str]]:
    times = (
        "2015-12-31T12:00:00Z", "2016-01-03T23:59:59Z", "2016-01-04T00:00:00Z", "2018-12-31T00:00:00Z",
        "2020-12-31T23:30:00Z", "2021-01-01T00:00:00Z", "2021-01-03T12:00:00Z", "2021-01-04T00:00:00Z",
        "2024-02-29T23:59:00Z", "2024-12-31T23:59:59Z", "2000-01-01T00:00:00Z", "1969-12-31T23:59:59Z",
        "0999-07-01T00:00:00Z", "9998-12-31T23:00:00Z",
    )  # fmt: skip
    for at in times:
        for strategy in ("stable", "daily", "weekly"):
            yield f"{strategy} at {at}", job("golden/year", window=HOUR, seed={"strategy": strategy}), at
    for key in ("Asia/Tokyo", "America/Los_Angeles"):
        for at in ("2020-12-31T20:00:00Z", "2021-01-04T03:00:00Z"):
            made = job("golden/year", timezone=key, window=HOUR, seed={"strategy": "weekly"})
            yield f"weekly in {key} at {at}", made, at


def constraints() -> Iterator[tuple[str, Definition, str]]:
    rules: list[tuple[str, object]] = [
        ("hours", [0, 5, "20-23"]),
        ("dow", ["sat", 7]),
        ("dom", [1, "24-26", 31]),
        ("months", ["jan", 12]),
        ("between", ["22:30-01:15", "12:00-12:00"]),
        ("dates", ["2024-12-25", "2024-12-27..2024-12-29"]),
        ("calendars", HOLIDAYS),
    ]
    week = {"mode": "around", "duration": "240h"}
    for kind, values in rules:
        for side in ("only", "avoid"):
            made = job(
                "golden/rule", timezone="Europe/Berlin", window=week, constraints={side: {kind: values}}
            )
            yield f"{side} {kind}", made, "2024-12-27T12:00:00Z"
    every = {
        "only": {"hours": ["8-17"], "dow": ["1-5"]},
        "avoid": {"between": ["12:00-12:59"], "calendars": HOLIDAYS},
    }
    yield "only and avoid", job("golden/rule", window=week, constraints=every), "2024-12-27T12:00:00Z"
    rare = {"only": {"between": ["11:59-11:59"]}}
    yield "one minute in ten days", job("golden/rule", window=week, constraints=rare), "2024-12-27T12:00:00Z"
    for number in range(8):
        made = job(f"golden/rare/{number}", window=HOUR, constraints={"only": {"between": ["12:10-12:11"]}})
        yield f"two minutes of an hour, {number}", made, "2024-12-27T12:00:00Z"
    never = {"avoid": {"hours": ["0-23"]}}
    yield "never", job("golden/rule", window=HOUR, constraints=never), "2024-12-27T12:00:00Z"
    yield "never, without a window", job("golden/rule", constraints=never), "2024-12-27T12:00:00Z"
    only_noon = {"only": {"hours": [12]}}
    yield "allowed, without a window", job("golden/rule", constraints=only_noon), "2024-12-27T12:00:00Z"


def names() -> Iterator[tuple[str, Definition, str]]:
    for identity in (
        "a",
        "prod/db backup",
        "Zürich/Wartung",
        "東京/保守",
        "🚀",
        "x" * 500,
        'quote"back\\slash\ttab',
    ):
        for salt in ("", "salt", "two\nlines", "Ω"):
            seed = {"strategy": "stable", "salt": salt}
            name = f"identity {identity[:20]!r}, salt {salt!r}"
            yield name, job(identity, window=HOUR, seed=seed), "2025-05-06T07:00:00Z"


def entries() -> list[dict[str, object]]:
    """Return every case with its decision."""
    return [
        {
            "name": name,
            "job": definition,
            "nominal_time": at,
            "decision": decide(Job.from_dict(definition), datetime.fromisoformat(at)).to_dict(),
        }
        for name, definition, at in cases()
    ]


def changed(old: list[dict[str, object]], new: list[dict[str, object]]) -> list[str]:
    """Return the names of kept decisions that are no longer there or no longer the same."""
    decisions = {entry["name"]: without_release(entry["decision"]) for entry in new}
    return [
        str(entry["name"])
        for entry in old
        if decisions.get(entry["name"]) != without_release(entry["decision"])
    ]


def without_release(decision: object) -> dict[str, object]:
    """Return a certificate without the release of the zone database, which changes with the machine."""
    assert isinstance(decision, dict)
    return {name: value for name, value in decision.items() if name != "tzdata_version"}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--major", action="store_true", help="write everything anew, for a new major version")
    major: bool = parser.parse_args().major
    new = entries()
    old = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else []
    if not major and (names := changed(old, new)):
        print("these decisions would change, which takes a new major version (--major):", file=sys.stderr)
        print(*(f"  {name}" for name in names), sep="\n", file=sys.stderr)
        return 1
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in new)
    FILE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(f"{len(new)} decisions, {len(new) - len(old)} of them new")
    return 0


if __name__ == "__main__":
    sys.exit(main())
