"""Golden decisions: what was decided once is decided for ever, here and in other implementations."""

import json
import math
import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest

from kron.core.errors import InvalidInstantError
from kron.core.job.decision import attempts_of, decide
from kron.core.job.job import Job
from kron.core.job.seed import splitmix64, state_of, unit_of
from kron.core.job.verify import FIELDS, VerifyResult, verify
from kron.core.time.instant import rfc3339
from tools.golden import changed, entries

GOLDEN = Path(__file__).parents[2] / "golden"
VECTORS: dict[str, Any] = json.loads((GOLDEN / "vectors.json").read_text(encoding="utf-8"))
KEPT: list[dict[str, Any]] = json.loads((GOLDEN / "decisions.json").read_text(encoding="utf-8"))


def certificate(entry: dict[str, Any]) -> dict[str, Any]:
    """Return what is decided today for an entry, without the release of the zone database."""
    job = Job.from_dict(entry["job"])
    found = decide(job, datetime.fromisoformat(entry["nominal_time"])).to_dict()
    del found["tzdata_version"]
    return found


def named(*words: str) -> list[dict[str, Any]]:
    """Return the certificates of the entries whose name has all these words."""
    return [entry["decision"] for entry in KEPT if all(word in entry["name"] for word in words)]


# --- shared with other implementations -------------------------------------------------------------


def test_the_generator_gives_the_published_numbers() -> None:
    state, numbers = 0, []
    for _ in VECTORS["splitmix64_seed_0"]:
        state, number = splitmix64(state)
        numbers.append(f"{number:016x}")
    assert numbers == VECTORS["splitmix64_seed_0"]


@pytest.mark.parametrize("vector", VECTORS["decisions"], ids=lambda vector: vector["name"])
def test_a_shared_vector_is_met_to_the_bit(vector: dict[str, Any]) -> None:
    found = certificate(vector)
    assert {name: found[name] for name in vector["expect"]} == vector["expect"]


# --- our own ---------------------------------------------------------------------------------------


def test_a_kept_decision_never_changes() -> None:
    for entry in KEPT:
        kept = {name: value for name, value in entry["decision"].items() if name != "tzdata_version"}
        found = certificate(entry)
        assert found == kept, entry["name"]
        assert json.dumps(found) == json.dumps(kept), entry["name"]


def test_the_tool_that_writes_the_kept_decisions_finds_none_of_them_changed() -> None:
    assert changed(KEPT, entries()) == []
    spoilt = [{**KEPT[0], "decision": {**KEPT[0]["decision"], "attempts": 7}}, *KEPT[1:]]
    assert changed(spoilt, entries()) == [KEPT[0]["name"]]


def test_every_distribution_mode_strategy_and_kind_is_among_the_kept_decisions() -> None:
    kept = [entry["decision"] for entry in KEPT]
    assert {decision["distribution"]["name"] for decision in kept} == {
        "uniform",
        "skewEarly",
        "skewLate",
        "normal",
        "exponential",
    }
    assert {decision["window"]["mode"] for decision in kept} == {"after", "before", "around"}
    assert {decision["seed_strategy"] for decision in kept} == {"stable", "daily", "weekly"}
    kinds = ("hours", "dow", "dom", "months", "between", "dates", "calendars")
    applied = {name for decision in kept for name in decision["constraints_applied"]}
    assert applied == {f"{side}.{kind}" for side in ("only", "avoid") for kind in kinds}
    assert {decision["unschedulable"] for decision in kept} == {True, False}


@pytest.mark.parametrize(
    ("name", "key"),
    [
        pytest.param("weekly at 2015-12-31T12:00:00Z", "2015-W53", id="last week of a long year"),
        pytest.param("weekly at 2016-01-03T23:59:59Z", "2015-W53", id="its Sunday in the next year"),
        pytest.param("weekly at 2016-01-04T00:00:00Z", "2016-W01", id="the Monday after"),
        pytest.param("weekly at 2018-12-31T00:00:00Z", "2019-W01", id="first week in the old year"),
        pytest.param("weekly at 2021-01-03T12:00:00Z", "2020-W53", id="week 53 of 2020"),
        pytest.param("weekly in Asia/Tokyo at 2020-12-31T20:00:00Z", "2020-W53", id="Tokyo is a day ahead"),
        pytest.param(
            "weekly in America/Los_Angeles at 2021-01-04T03:00:00Z", "2020-W53", id="still Sunday there"
        ),
        pytest.param("weekly in Asia/Tokyo at 2021-01-04T03:00:00Z", "2021-W01", id="Monday there"),
        pytest.param("daily at 2024-02-29T23:59:00Z", "2024-02-29", id="leap day"),
        pytest.param("daily at 2024-12-31T23:59:59Z", "2024-12-31", id="last second of a year"),
        pytest.param("daily at 1969-12-31T23:59:59Z", "1969-12-31", id="before 1970"),
        pytest.param("daily at 0999-07-01T00:00:00Z", "0999-07-01", id="a year of three digits"),
        pytest.param("weekly at 0999-07-01T00:00:00Z", "0999-W27", id="its week"),
        pytest.param("stable at 0999-07-01T00:00:00Z", "0999-07-01T00:00:00Z", id="its period"),
        pytest.param("daily in Pacific/Kiritimati", "2024-04-01", id="fourteen hours ahead"),
        pytest.param("daily in Pacific/Pago_Pago", "2024-03-31", id="eleven hours behind"),
        pytest.param("a day before the missing one", "2011-12-29", id="before a day that never was"),
        pytest.param("a day after the missing one", "2011-12-31", id="after a day that never was"),
    ],
)
def test_a_period_key_is_the_day_or_the_iso_week_of_the_zone(name: str, key: str) -> None:
    (entry,) = [entry for entry in KEPT if entry["name"] == name]
    assert certificate(entry)["period_key"] == key


@pytest.mark.parametrize(
    ("name", "start", "end"),
    [
        pytest.param("after 0.999999s", 0, 0, id="after, almost a second"),
        pytest.param("after 1.5s", 0, 1, id="after"),
        pytest.param("before 0.000001s", -1, 0, id="before, hardly anything"),
        pytest.param("before 1.5s", -2, 0, id="before"),
        pytest.param("around 0.000001s", -1, 0, id="around, hardly anything"),
        pytest.param("around 1.5s", -1, 0, id="around, less than two seconds"),
        pytest.param("around 1.999999s", -1, 0, id="around, hardly less than two seconds"),
        pytest.param("around 2.5s", -2, 1, id="around, a quarter left over"),
        pytest.param("around 3s", -2, 1, id="around, an odd number"),
        pytest.param("around 1h1m1s", -1831, 1830, id="around, odd and long"),
        pytest.param("before 999h", -3_596_400, 0, id="before, long"),
        pytest.param("center is around", -2, 1, id="center"),
        pytest.param("no window at all", 0, 0, id="no window"),
    ],
)
def test_a_bound_of_a_window_is_floored_to_a_whole_second(name: str, start: int, end: int) -> None:
    (entry,) = [entry for entry in KEPT if entry["name"] == name]
    found = certificate(entry)
    nominal = datetime.fromisoformat(found["nominal_time"])
    bounds = [datetime.fromisoformat(found[bound]) - nominal for bound in ("window_start", "window_end")]
    assert bounds == [timedelta(seconds=start), timedelta(seconds=end)]


def test_an_hour_that_the_clocks_skip_cannot_be_chosen() -> None:
    (forward,) = named("clocks forward", "only hour 2")
    (back,) = named("clocks back", "only hour 2")
    assert (forward["chosen_time"], forward["attempts"], forward["unschedulable"]) == (None, 64, True)
    assert back["chosen_time"] is not None


def test_both_showings_of_a_repeated_hour_belong_to_one_day_but_are_two_periods() -> None:
    (first,), (second,) = named("clocks back, daily"), named("repeated hour, daily")
    assert first["period_id"] != second["period_id"]
    assert first["period_key"] == second["period_key"] == "2025-10-26"
    assert first["seed_hash"] == second["seed_hash"]


# --- the certificate -------------------------------------------------------------------------------


def test_a_certificate_has_exactly_the_fields_of_its_format() -> None:
    job = Job.from_dict({"identity": "prod/db-backup", "schedule": "0 0 * * *", "window": {"duration": "1h"}})
    found = decide(job, datetime(2026, 3, 1, tzinfo=UTC)).to_dict()
    assert set(found) == set(FIELDS)
    assert isinstance(found.pop("tzdata_version"), str)
    assert found == {
        "kron_decision": 1,
        "identity": "prod/db-backup",
        "salt": "",
        "period_id": "2026-03-01T00:00:00Z",
        "nominal_time": "2026-03-01T00:00:00Z",
        "window": {"mode": "after", "duration": "1h"},
        "window_start": "2026-03-01T00:00:00Z",
        "window_end": "2026-03-01T01:00:00Z",
        "chosen_time": "2026-03-01T00:58:29Z",
        "timezone": "UTC",
        "distribution": {"name": "uniform"},
        "seed_strategy": "stable",
        "period_key": "2026-03-01T00:00:00Z",
        "seed_hash": "4279dd7a284efb4a887f4eb154288b5d14c90a4507251b6ae4f59b877b19ed0f",
        "attempts": 1,
        "constraints": {"only": {}, "avoid": {}},
        "constraints_applied": [],
        "unschedulable": False,
    }


@pytest.mark.parametrize(
    ("given", "mode", "full"),
    [
        pytest.param("uniform", "after", {"name": "uniform"}, id="uniform"),
        pytest.param("skewEarly", "after", {"name": "skewEarly", "shape": 2.0}, id="skewEarly"),
        pytest.param("skewLate", "after", {"name": "skewLate", "shape": 2.0}, id="skewLate"),
        pytest.param(
            "exponential", "after", {"name": "exponential", "lambda": 1.0, "dir": "early"}, id="exponential"
        ),
        pytest.param("normal", "after", {"name": "normal", "mu": "mid"}, id="normal after"),
        pytest.param("normal", "before", {"name": "normal", "mu": "mid"}, id="normal before"),
        pytest.param("normal", "around", {"name": "normal", "mu": "nominal"}, id="normal around"),
        pytest.param("normal", "center", {"name": "normal", "mu": "nominal"}, id="normal center"),
    ],
)
def test_defaults_are_filled_in_and_decide_the_same(given: str, mode: str, full: dict[str, object]) -> None:
    common = {"identity": "a", "schedule": "0 0 * * *", "window": {"mode": mode, "duration": "3h"}}
    at = datetime(2025, 6, 1, tzinfo=UTC)
    short = decide(Job.from_dict({**common, "distribution": given}), at).to_dict()
    long = decide(Job.from_dict({**common, "distribution": full}), at).to_dict()
    assert short["distribution"] == full
    assert short == long


def test_a_sigma_left_out_is_a_sixth_of_the_window() -> None:
    common = {"identity": "a", "schedule": "0 0 * * *", "window": {"duration": "3h"}}
    at = datetime(2025, 6, 1, tzinfo=UTC)
    left_out, given, other = (
        decide(Job.from_dict({**common, "distribution": {"name": "normal", **sigma}}), at).chosen_time
        for sigma in ({}, {"sigma": "30m"}, {"sigma": "5m"})
    )
    assert left_out == given != other


def test_the_same_instant_in_another_zone_is_the_same_period() -> None:
    job = Job.from_dict({"identity": "a", "schedule": "0 0 * * *", "window": {"duration": "1h"}})
    here = datetime(2026, 3, 1, 5, 45, tzinfo=timezone(timedelta(hours=5, minutes=45)))
    assert decide(job, here).to_dict() == decide(job, datetime(2026, 3, 1, tzinfo=UTC)).to_dict()


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(datetime(2026, 3, 1), id="naive"),
        pytest.param(datetime(2026, 3, 1, microsecond=1, tzinfo=UTC), id="no whole second"),
        pytest.param("2026-03-01T00:00:00Z", id="a text"),
        pytest.param(datetime(9999, 12, 31, 23, 30, tzinfo=UTC), id="window beyond the calendar"),
    ],
)
def test_what_is_no_nominal_time_is_refused(bad: Any) -> None:
    job = Job.from_dict({"identity": "a", "schedule": "0 0 * * *", "window": {"duration": "1h"}})
    with pytest.raises(InvalidInstantError):
        decide(job, bad)


@pytest.mark.parametrize(
    ("zone", "at"),
    [
        pytest.param("America/New_York", datetime(1, 1, 1, tzinfo=UTC), id="the year 0 there"),
        pytest.param("Asia/Tokyo", datetime(9999, 12, 31, 23, tzinfo=UTC), id="the year 10000 there"),
    ],
)
@pytest.mark.parametrize("more", [{"seed": {"strategy": "daily"}}, {"constraints": {"avoid": {"dom": [5]}}}])
def test_a_local_time_beyond_the_calendar_is_refused(
    zone: str, at: datetime, more: dict[str, object]
) -> None:
    job = Job.from_dict({"identity": "a", "schedule": "0 0 * * *", "timezone": zone, **more})
    with pytest.raises(InvalidInstantError):
        decide(job, at)


def test_the_stream_begins_with_the_first_eight_bytes_of_the_hash() -> None:
    seed = "4279dd7a284efb4a" + 48 * "0"
    assert state_of(seed) == 0x4279DD7A284EFB4A
    assert unit_of((1 << 64) - 1) == 1 - 2**-53
    assert unit_of(1 << 11) == 2**-53
    assert unit_of((1 << 11) - 1) == 0.0


# --- the page that describes the format ------------------------------------------------------------

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "decision-format.md").read_text(encoding="utf-8")


def rows_of(header: str) -> list[list[str]]:
    """Return the cells of the page's table that begins with a header."""
    lines = PAGE[PAGE.index(header) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_page_names_every_field_of_a_certificate() -> None:
    named = re.findall(r"`(\w+)`", " ".join(row[0] for row in rows_of("| field | JSON type |")))
    assert sorted(named) == sorted(FIELDS)


def test_the_worked_example_of_the_page_is_true_to_the_last_digit() -> None:
    example = json.loads(PAGE.split("```json\n")[1].split("```")[0])
    assert verify(example).finding is VerifyResult.OK
    kept = {name: example[name] for name in ("identity", "timezone", "window", "distribution", "constraints")}
    seed = {"strategy": example["seed_strategy"], "salt": example["salt"]}
    job = Job.from_dict({**kept, "schedule": "30 2 * * *", "seed": seed})
    decision = decide(job, datetime.fromisoformat(example["nominal_time"]))
    shown = {row[0]: row[1:] for row in rows_of("| | first draw | second draw |")}
    state = state_of(decision.seed_hash)
    assert f"The initial state is `{state:016x}`" in PAGE
    assert f"{job.identity}\n{decision.period_key}\n{job.salt}".encode().hex(" ") in PAGE
    attempts = list(attempts_of(job, decision.nominal_time, decision.bounds, decision.seed_hash))
    for column, attempt in enumerate(attempts):
        state, number = splitmix64(state)
        x = job.distribution.place(attempt.u, decision.bounds, decision.nominal_time)
        assert shown["state"][column] == f"`{state:016x}`"
        assert shown["z"][column] == f"`{number:016x}`"
        assert shown["z >> 11"][column] == str(number >> 11)
        assert shown["u"][column] == repr(attempt.u)
        assert shown["x"][column] == repr(x)
        assert shown["x * (W + 1)"][column] == repr(x * 9002)
        assert shown["candidate"][column] == rfc3339(attempt.candidate)
    assert len(attempts) == len(shown["u"])


def test_the_constants_of_the_page_are_those_of_the_algorithm() -> None:
    first, second = rows_of("| | A | B | C |"), rows_of("| | D | E | F |")
    columns = [[float(row[column]) for row in rows] for rows in (first, second) for column in (1, 2, 3)]

    def polynomial(constants: list[float], r: float) -> float:
        value = constants[0]
        for constant in constants[1:]:
            value = value * r + constant
        return value

    def inverse(p: float) -> float:
        a, b, c, d, e, f = columns
        q = p - 0.5
        if abs(q) <= 0.425:
            r = 0.180625 - q * q
            return polynomial(a, r) * q / polynomial(b, r)
        r = math.sqrt(-math.log(p if q <= 0 else 1.0 - p))
        y = (
            polynomial(c, r - 1.6) / polynomial(d, r - 1.6)
            if r <= 5
            else polynomial(e, r - 5) / polynomial(f, r - 5)
        )
        return -y if q < 0 else y

    places = [2**-54, 1e-15, 1e-12, 1 - 2**-53, *(number / 997 for number in range(1, 997))]
    assert [inverse(p) for p in places] == pytest.approx([NormalDist().inv_cdf(p) for p in places], rel=1e-15)


def test_the_page_says_that_a_changed_decision_is_a_new_major_version() -> None:
    assert "new major version" in PAGE
    assert "--major" in (Path(__file__).parents[3] / "tools" / "golden.py").read_text(encoding="utf-8")
