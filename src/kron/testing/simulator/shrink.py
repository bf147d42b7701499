"""Making a scenario smaller while it still shows the same fault."""

from collections.abc import Callable, Iterator

from kron.testing.simulator.scenario import Act, Scenario

# A scenario has a few dozen steps, so that this is never reached unless a fault comes and goes.
MAX_TRIALS = 400


def shrink(scenario: Scenario, fails: Callable[[Scenario], bool]) -> Scenario:
    """Return a scenario from which nothing can be left out without losing the fault."""
    trials = 0
    found = True
    while found:
        found = False
        for smaller in _smaller(scenario):
            trials += 1
            if trials > MAX_TRIALS:
                return scenario
            if fails(smaller):
                scenario, found = smaller, True
                break
    return scenario


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Yield the scenario with one thing less: a step, a task, what a task does, or turns of the loop."""
    steps = scenario.steps
    for i in reversed(range(len(steps))):
        yield scenario._replace(steps=steps[:i] + steps[i + 1 :])
    for i, step in enumerate(steps):
        variants = [step._replace(turns=0)] if step.turns else []
        if step.act is Act.INIT:
            tasks = step.tasks
            variants += [step._replace(tasks=tasks[:k] + tasks[k + 1 :]) for k in range(len(tasks))]
            variants += [
                step._replace(tasks=(*tasks[:k], task._replace(does=task.does[:-1]), *tasks[k + 1 :]))
                for k, task in enumerate(tasks)
                if task.does
            ]
        for variant in variants:
            yield scenario._replace(steps=(*steps[:i], variant, *steps[i + 1 :]))
