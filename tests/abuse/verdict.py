"""What the rows of an abuse experiment say: every violation in a sentence, and the summary."""

from collections.abc import Sequence

from tests.abuse.experiment import LONG_QUIET, MIX, QUIET, Row

# The lateness that the neighbour's starts keep on a quiet machine, in milliseconds: of each, and of 99 in 100
# during the mixed attack.
MAX_MS, P99_MS = 1_000.0, 250.0
# The most memory that the API and the worker may have used at the end of an attack, in MiB.
API_MIB, WORKER_MIB = 600, 200
CONTROLS = (QUIET, LONG_QUIET)


def violations(rows: Sequence[Row], requests: int = 0) -> list[str]:
    """Return every violation; `requests` is how many requests of each attack are required."""
    found = []
    for row in rows:
        late, p99 = row.late_ms(1.0), row.late_ms(0.99)
        checks = (
            (row.lost, f"{row.lost} starts of the neighbour were lost"),
            (row.doubled, f"{row.doubled} starts of the neighbour came twice"),
            (not row.starts, "no start of the neighbour was seen"),
            (late > MAX_MS, f"a start of the neighbour was {late:.0f} ms late"),
            (
                row.name == MIX and p99 > P99_MS,
                f"the 99th percentile is {p99:.0f} ms, not below {P99_MS:.0f}",
            ),
            (row.api_mib > API_MIB, f"the API used {row.api_mib:.0f} MiB, more than {API_MIB}"),
            (
                row.worker_mib > WORKER_MIB,
                f"the worker used {row.worker_mib:.0f} MiB, more than {WORKER_MIB}",
            ),
            (
                row.answers and row.answers.total() < least_of(row.name, requests),
                f"only {row.answers.total()} requests were sent",
            ),
        )
        found += [f"{row.name}: {sentence}" for is_wrong, sentence in checks if is_wrong]
    return found


def least_of(name: str, requests: int) -> int:
    """Return how many requests an attack has to send."""
    return 0 if name in (*CONTROLS, MIX) else requests


def summary(rows: Sequence[Row], requests: int = 0) -> list[str]:
    """Return the worst of all attacks beside the control, and every violation."""
    attacks = [row for row in rows if row.name not in CONTROLS]
    lines = []
    for title, group in (
        ("control", [row for row in rows if row.name in CONTROLS]),
        ("attacks", attacks),
        ("mixed", [row for row in attacks if row.name == MIX]),
    ):
        if group:
            p50, p99, late = (max(row.late_ms(share) for row in group) for share in (0.5, 0.99, 1.0))
            lines.append(
                f"{title}: {sum(row.starts for row in group)} starts, {sum(row.lost for row in group)} lost, "
                f"{sum(row.doubled for row in group)} twice; at worst p50 {p50:.0f} ms, p99 {p99:.0f} ms, "
                f"max {late:.0f} ms; API {max(row.api_mib for row in group):.0f} MiB, "
                f"worker {max(row.worker_mib for row in group):.0f} MiB"
            )
    found = violations(rows, requests)
    lines += [f"VIOLATION {sentence}" for sentence in found]
    if any(sentence.startswith(CONTROLS) for sentence in found):
        lines.append("the control is harmed without any attack: the machine is too busy to judge lateness")
    return [*lines, "violated" if found else "held"]
