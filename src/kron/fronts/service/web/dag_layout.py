"""The picture of a DAG: tasks in columns by their depth, with few crossings, and the lines between them."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

# Sizes in pixels: a box, and the space between boxes.
WIDTH, HEIGHT, ACROSS, DOWN = 168, 34, 52, 14
# More tasks, or longer lines between them in all, are not drawn.
MAX_BOXES, MAX_SPAN = 200, 3_000
# Passes that order each column by its neighbours.
SWEEPS = 4

# A place of a column: a task, or the point where a line from one task to another passes.
Place = tuple[str, str]


class Box(NamedTuple):
    """A task and the left upper corner of its box."""

    task_id: str
    x: int
    y: int


class Picture(NamedTuple):
    """The boxes and lines of a DAG, and its size; a line is a path from a task to one that depends on it."""

    width: int
    height: int
    boxes: list[Box]
    lines: list[str]


def picture_of(needs: Mapping[str, Sequence[str]]) -> Picture | None:
    """Return the picture of tasks with those each one depends on, without cycles; None if it is too large."""
    if len(needs) > MAX_BOXES:
        return None
    depth = _depths(needs)
    edges = [(needed, task) for task, all_needed in needs.items() for needed in all_needed]
    if sum(depth[task] - depth[needed] for needed, task in edges) > MAX_SPAN:
        return None
    columns, chains = _columns(depth, edges)
    _order(columns, chains)
    tallest = max(map(len, columns))
    places = {
        place: (column * (WIDTH + ACROSS), (2 * row + tallest - len(rows)) * (HEIGHT + DOWN) // 2)
        for column, rows in enumerate(columns)
        for row, place in enumerate(rows)
    }
    boxes = [Box(name, *places[name, ""]) for name in needs]
    lines = [_line([places[place] for place in chain]) for chain in chains]
    size = len(columns) * (WIDTH + ACROSS) - ACROSS, tallest * (HEIGHT + DOWN) - DOWN
    return Picture(*size, boxes, lines)


def _depths(needs: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the length of the longest path to each task; no recursion, as a chain may be long."""
    depth: dict[str, int] = {}
    left = list(needs)
    while left:
        missing = [needed for needed in needs[left[-1]] if needed not in depth]
        if missing:
            left += missing
        else:
            task = left.pop()
            depth[task] = max((depth[needed] + 1 for needed in needs[task]), default=0)
    return depth


def _columns(
    depth: Mapping[str, int], edges: Sequence[tuple[str, str]]
) -> tuple[list[list[Place]], list[list[Place]]]:
    """Return the places of each column, and the chain of places of each line."""
    columns: list[list[Place]] = [[] for _ in range(max(depth.values()) + 1)]
    for task, column in depth.items():
        columns[column].append((task, ""))
    chains: list[list[Place]] = []
    for needed, task in edges:
        passed = [(f"{needed} {column}", task) for column in range(depth[needed] + 1, depth[task])]
        for column, place in enumerate(passed, depth[needed] + 1):
            columns[column].append(place)
        chains.append([(needed, ""), *passed, (task, "")])
    return columns, chains


def _order(columns: list[list[Place]], chains: Sequence[Sequence[Place]]) -> None:
    """Order each column by the mean place of its neighbours, forwards and backwards in turn."""
    before: dict[Place, list[Place]] = {}
    after: dict[Place, list[Place]] = {}
    for chain in chains:
        for one, other in pairwise(chain):
            before.setdefault(other, []).append(one)
            after.setdefault(one, []).append(other)
    for sweep in range(SWEEPS):
        neighbours, order = (before, columns) if sweep % 2 == 0 else (after, columns[::-1])
        for fixed, moved in pairwise(order):
            rows = {place: float(row) for row, place in enumerate(fixed)}
            means = {
                place: fmean([rows[each] for each in neighbours[place]])
                if place in neighbours
                else float(row)
                for row, place in enumerate(moved)
            }
            moved.sort(key=means.__getitem__)


def _line(points: Sequence[tuple[int, int]]) -> str:
    """Return a path from the right side of the first box to the left side of the last one."""
    middle = HEIGHT // 2
    x, y = points[0][0] + WIDTH, points[0][1] + middle
    path = [f"M{x} {y}"]
    for number, (left, top) in enumerate(points[1:], 2):
        bend, end = (x + left) // 2, top + middle
        path.append(f"C{bend} {y} {bend} {end} {left} {end}")
        x, y = left, end
        if number < len(points):
            x += WIDTH
            path.append(f"H{x}")
    return "".join(path)
