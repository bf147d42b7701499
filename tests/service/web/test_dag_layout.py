"""The picture of a DAG: no box on another, tasks right of those they depend on, few crossings, a bound."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kron.fronts.service.web.dag_layout import HEIGHT, MAX_BOXES, WIDTH, Picture, picture_of

DIAMOND = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}


def drawn(needs: dict[str, tuple[str, ...]]) -> Picture:
    picture = picture_of(needs)
    assert picture is not None
    return picture


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, tuple[str, ...]]:
    """Return tasks that depend on earlier ones, in any order."""
    names = [f"t{number}" for number in range(draw(st.integers(1, 12)))]
    needs = {
        name: tuple(draw(st.lists(st.sampled_from(names[:number]), unique=True, max_size=4)))
        if number
        else ()
        for number, name in enumerate(names)
    }
    return {name: needs[name] for name in draw(st.permutations(names))}


@given(graphs())
def test_every_task_has_a_box_right_of_those_it_depends_on_and_no_two_overlap(
    needs: dict[str, tuple[str, ...]],
) -> None:
    picture = drawn(needs)
    places = {box.task_id: (box.x, box.y) for box in picture.boxes}
    assert places.keys() == needs.keys()
    for task, all_needed in needs.items():
        assert all(places[needed][0] + WIDTH < places[task][0] for needed in all_needed)
    for x in {x for x, _ in places.values()}:
        column = sorted(y for other, y in places.values() if other == x)
        assert all(upper + HEIGHT < lower for upper, lower in pairwise(column))
    assert all(0 <= x <= picture.width - WIDTH for x, _ in places.values())
    assert all(0 <= y <= picture.height - HEIGHT for _, y in places.values())
    assert len(picture.lines) == sum(map(len, needs.values()))


def test_a_line_past_other_columns_has_a_place_in_each() -> None:
    picture = drawn({**DIAMOND, "e": ("a", "d")})
    places = {box.task_id: (box.x, box.y) for box in picture.boxes}
    past = next(line for line in picture.lines if line.count("H") == 2)
    assert past.endswith(f"{places['e'][0]} {places['e'][1] + HEIGHT // 2}")
    # It runs beside the boxes of the columns that it passes, not through them.
    heights = {y + HEIGHT // 2 for name, (_, y) in places.items() if name in ("b", "c")}
    first_level = int(past.split("H")[0].rsplit(" ", 1)[1])
    assert first_level not in heights


def test_two_chains_do_not_cross() -> None:
    picture = drawn({"a": (), "b": (), "y": ("b",), "x": ("a",)})
    y = {box.task_id: box.y for box in picture.boxes}
    assert (y["a"] < y["b"]) == (y["x"] < y["y"])


def test_a_large_dag_is_not_drawn_and_a_long_chain_is() -> None:
    chain: dict[str, tuple[str, ...]] = {f"t{n}": (f"t{n - 1}",) if n else () for n in range(MAX_BOXES)}
    assert len(drawn(chain).boxes) == MAX_BOXES
    assert picture_of({**chain, "more": ()}) is None
    dense = {f"t{n}": tuple(f"t{m}" for m in range(n)) for n in range(60)}
    assert picture_of(dense) is None
