"""Simulate thousands of years from a fresh seed, and every order of a few events: part of `make soak`."""

import argparse
import logging
import secrets
import sys
from time import perf_counter

from kron.testing.simulator import Verdict, shrink, simulate
from kron.testing.simulator.explore import count, scenarios
from kron.testing.simulator.judge import judged

YEAR_S = 365 * 86_400
YEARS, BOUND = 10_000, 4
MAX_SEED = 1_000_000_000
# Progress is reported this often.
SAY_EVERY_S = 10.0


def main() -> None:
    """Play seed after seed until that number of years has passed, then explore."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--years", type=float, default=YEARS)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(MAX_SEED), help="the first seed")
    parser.add_argument("--bound", type=int, default=BOUND, help="the number of events to order")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    start = perf_counter()
    say(f"seeds from {options.seed}")
    stories, years = soak(options.seed, options.years)
    say(f"{stories:,} stories, {years:,.0f} simulated years, no violation, {perf_counter() - start:.0f} s")
    start = perf_counter()
    explore(options.bound)
    say(f"{count(options.bound):,} orders of up to {options.bound} events, {perf_counter() - start:.0f} s")


def soak(seed: int, wanted: float) -> tuple[int, float]:
    """Play stories until that number of years has passed; return the number of stories and of years."""
    stories, years, said = 0, 0.0, perf_counter()
    while years < wanted:
        verdict = simulate(seed + stories)
        stories, years = stories + 1, years + verdict.history.scenario.seconds / YEAR_S
        refuse(verdict)
        if perf_counter() - said > SAY_EVERY_S:
            said = perf_counter()
            say(f"{stories:,} stories, {years:,.0f} of {wanted:,.0f} years")
    return stories, years


def explore(bound: int) -> None:
    """Play every order of up to `bound` events."""
    said = perf_counter()
    for number, scenario in enumerate(scenarios(bound)):
        refuse(judged(scenario))
        if perf_counter() - said > SAY_EVERY_S:
            said = perf_counter()
            say(f"{number:,} of {count(bound):,} orders explored")


def refuse(verdict: Verdict) -> None:
    """Exit with the smallest scenario that shows the same violation, if there is one."""
    if not verdict.lawful:
        signature = verdict.signature
        smallest = shrink(verdict.history.scenario, lambda scenario: judged(scenario).signature == signature)
        print(judged(smallest, seed=verdict.seed))
        sys.exit(1)


def say(text: str) -> None:
    """Print a line at once."""
    print(f"[soak] {text}", flush=True)


if __name__ == "__main__":
    main()
