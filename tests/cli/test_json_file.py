"""JSON with the line of everything in it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.cli.support.json_file import TextError, lines_of_json, parse_json
from tests.strategies import law

TEXT = """\
{
  "jobs": [
    {"identity": "a", "x": {}},
    5, [
      "{\\"[", []],
    {
      "window":
        {"mode": "after",
         "d\\u00e9": [1,
2]}
    }
  ],
  "calendars": null
}
"""


def test_each_field_has_the_line_of_its_name_and_each_item_its_own() -> None:
    assert lines_of_json(TEXT) == {
        "": 1,
        "jobs": 2,
        "jobs[0]": 3,
        "jobs[0].identity": 3,
        "jobs[0].x": 3,
        "jobs[1]": 4,
        "jobs[2]": 4,
        "jobs[2][0]": 5,
        "jobs[2][1]": 5,
        "jobs[3]": 6,
        "jobs[3].window": 7,
        "jobs[3].window.mode": 8,
        "jobs[3].window.dé": 9,
        "jobs[3].window.dé[0]": 9,
        "jobs[3].window.dé[1]": 10,
        "calendars": 13,
    }


def paths_of(value: Any, path: str) -> list[str]:
    if isinstance(value, dict):
        named = [(f"{path}.{name}" if path else name, inner) for name, inner in value.items()]
    else:
        named = [(f"{path}[{n}]", inner) for n, inner in enumerate(value)] if isinstance(value, list) else []
    return [path, *(found for inner_path, inner in named for found in paths_of(inner, inner_path))]


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text('ab"\\{ é\n', min_size=1), inner)
)


@given(VALUES, st.sampled_from([None, 0, 1]))
@law(200)
def test_every_path_of_any_value_has_a_line_and_nothing_else_has(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    assert parse_json(text) == value
    lines = lines_of_json(text)
    assert list(lines) == list(dict.fromkeys(paths_of(value, "")))
    assert list(lines.values()) == sorted(lines.values())
    assert max(lines.values()) <= text.count("\n") + 1


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        pytest.param('{"a": 1,\n"a": 2}', 2, 'duplicate field "a"', id="twice"),
        pytest.param('[{"a": 1},\n{"a": 1,\n"a": 2}]', 3, 'duplicate field "a"', id="later"),
        pytest.param("[1,\n-Infinity]", 2, "-Infinity is not JSON", id="a constant"),
        pytest.param('["NaN",\nNaN]', 2, "NaN is not JSON", id="a constant and a text"),
        pytest.param('{"a":\n}', 2, "it is not JSON: Expecting value at column 1", id="broken"),
        pytest.param("", 1, "it is not JSON: Expecting value at column 1", id="empty"),
    ],
)
def test_an_invalid_line_is_named(text: str, line: int, reason: str) -> None:
    with pytest.raises(TextError) as caught:
        parse_json(text)
    assert (caught.value.line, str(caught.value)) == (line, reason)
