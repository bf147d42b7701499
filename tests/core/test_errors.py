"""Errors travel: to other processes, through copies, and into messages."""

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

import kron
from kron.core.errors import KronError, quoted


def raised(call: object, *arguments: object) -> KronError:
    assert callable(call)
    with pytest.raises(KronError) as caught:
        call(*arguments)
    return caught.value


ERRORS = [
    pytest.param(raised(kron.Schedule, "0 9 * * mno"), id="expression"),
    pytest.param(raised(kron.Schedule, "0 9 * * *", "Europe/Berln"), id="zone"),
    pytest.param(raised(kron.cron.parse_field, "61", "minute"), id="field"),
    pytest.param(raised(kron.Job.from_dict, {"identity": "a", "schedule": "x", "window": 5}), id="job"),
    pytest.param(raised(kron.decide, "x", None), id="option"),
]


@pytest.mark.parametrize("error", ERRORS)
def test_a_copy_of_an_error_is_the_same_error(error: KronError) -> None:
    for other in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert type(other) is type(error)
        assert (str(other), other.args, other.code) == (str(error), error.args, error.code)
        assert other.details == error.details
        assert vars(other) == vars(error)
        assert other.lines() == error.lines()


def test_an_error_reaches_the_program_that_asked_another_process() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        with pytest.raises(kron.InvalidCronExpressionError, match="got 1"):
            pool.submit(kron.Schedule, "x").result(timeout=60)
        assert pool.submit(kron.Schedule, "0 9 * * *").result(timeout=60) == kron.Schedule("0 9 * * *")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("x", "x"),
        (True, "true"),
        (5, "5"),
        (["2026-02-30", 1], "[2026-02-30, 1]"),
        ({"a": [False]}, "{a: [false]}"),
        ("y" * 100, "y" * 60 + "..."),
    ],
)
def test_a_value_is_quoted_as_people_write_it(value: object, shown: str) -> None:
    assert quoted(value) == shown
