"""Check decisions without Kron, as docs/reference/decision-format.md says: verify_decision.py < FILE.

The input is one decision or a list of them, each as it is or under "decision" in an object.
"""

import json
import math
import re
import sys
from datetime import datetime, timedelta
from hashlib import sha256
from statistics import NormalDist
from typing import Any
from zoneinfo import ZoneInfo

MASK, UNITS = 2**64 - 1, {"h": 3600, "m": 60, "s": 1}
KINDS = ("hours", "dow", "dom", "months", "between", "dates", "calendars")


def micros(text: str) -> int:
    return round(sum(float(n) * UNITS[unit] for n, unit in re.findall(r"([0-9.]+)([hms])", text)) * 1e6)


def place(d: dict[str, Any], u: float, width: int, nominal: int) -> float:
    if d["name"] == "normal":
        peak = {"nominal": nominal, "start": 0, "mid": width / 2, "end": width}[d["mu"]]
        sigma = micros(d["sigma"]) / 10**6 if "sigma" in d else width / 6
        low, high = (0.5 * (1.0 + math.erf((end - peak) / sigma / math.sqrt(2))) for end in (0, width))
        probability = min(max(low + u * (high - low), 2**-54), 1 - 2**-53)
        return (peak + sigma * NormalDist().inv_cdf(probability)) / width
    shape, rate = d.get("shape", 2), d.get("lambda", 1)
    x = -math.log(1 - u * (1 - math.exp(-rate))) / rate
    skews = {"uniform": u, "skewEarly": u**shape, "skewLate": 1 - (1 - u) ** shape}
    return float({**skews, "exponential": 1 - x if d.get("dir") == "late" else x}[d["name"]])


def matches(kind: str, values: Any, at: datetime) -> bool:
    parts = {"hours": at.hour, "dow": at.isoweekday() % 7, "dom": at.day, "months": at.month}
    if kind in parts:
        return parts[kind] in values
    if kind == "between":
        now, spans = at.isoformat()[11:16], (span.split("-") for span in values)
        return any(a <= now <= b if a <= b else now >= a or now <= b for a, b in spans)
    listed = [days for many in values.values() for days in many] if kind == "calendars" else values
    return any(days[:10] <= at.isoformat()[:10] <= days[-10:] for days in listed)


def differing(c: dict[str, Any]) -> list[str]:
    nominal, zone = datetime.fromisoformat(c["nominal_time"]), ZoneInfo(c["timezone"])
    share = {"after": 0, "around": 1, "before": 2}[c["window"]["mode"]]
    length, local = micros(c["window"]["duration"]), nominal.astimezone(zone)
    first, last = -length * share // 2_000_000, length * (2 - share) // 2_000_000
    (year, week, _), utc = local.isocalendar(), f"{nominal.isoformat()[:19]}Z"
    key = {"daily": local.isoformat()[:10], "weekly": f"{year:04}-W{week:02}"}.get(c["seed_strategy"], utc)
    seed = sha256(f"{c['identity']}\n{key}\n{c['salt']}".encode()).hexdigest()
    both = [(side, kind, c["constraints"][side].get(kind)) for side in ("only", "avoid") for kind in KINDS]
    rules = [rule for rule in both if rule[2]]
    state, width, attempts, chosen = int(seed[:16], 16), last - first, 0, None
    while chosen is None and attempts < (64 if width else 1):
        attempts, state = attempts + 1, (state + 0x9E3779B97F4A7C15) & MASK
        z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        x = place(c["distribution"], ((z ^ z >> 31) >> 11) / 2**53, width, -first) if width else 0.0
        at = nominal + timedelta(0, first + min(int(min(max(x, 0.0), 1 - 2**-53) * (width + 1)), width))
        if all(matches(kind, held, at.astimezone(zone)) == (side == "only") for side, kind, held in rules):
            chosen = f"{at.isoformat()[:19]}Z"
    start, end = (f"{(nominal + timedelta(0, bound)).isoformat()[:19]}Z" for bound in (first, last))
    names = "period_id nominal_time window_start window_end period_key seed_hash chosen_time unschedulable"
    found: list[Any] = [utc, utc, start, end, key, seed, chosen, chosen is None, attempts if width else 0]
    found.append([f"{side}.{kind}" for side, kind, _ in rules])
    pairs = zip([*names.split(), "attempts", "constraints_applied"], found, strict=True)
    return [name for name, value in pairs if (type(c[name]), c[name]) != (type(value), value)]


if __name__ == "__main__":
    read = json.load(open(sys.argv[1]) if sys.argv[1:] else sys.stdin)  # noqa: SIM115
    wrong = [differing(item.get("decision", item)) for item in (read if isinstance(read, list) else [read])]
    print(*(f"does not follow: {', '.join(names)}" if names else "ok" for names in wrong), sep="\n")
    sys.exit(any(wrong))
