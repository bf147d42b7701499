"""Which texts, numbers and missing values a stored task may have follows from the types of its fields."""

from typing import Any

import pytest

from kron.core.plan.record import JobRecord, RunRecord, field_types
from kron.core.task.errors import TaskInvalidTypeError, TaskMissingFieldError
from kron.core.task.restore import _check_fields
from kron.testing.contract.registry import FULL_JOB, FULL_RUN

RECORDS = [pytest.param(FULL_JOB, id="job"), pytest.param(FULL_RUN, id="run")]


@pytest.mark.parametrize("record", RECORDS)
def test_no_field_of_a_full_record_has_the_wrong_type(record: JobRecord | RunRecord) -> None:
    _check_fields(record)


@pytest.mark.parametrize("record", RECORDS)
def test_a_field_holds_no_other_type_and_is_missing_only_if_it_may_be(record: JobRecord | RunRecord) -> None:
    kind: type[tuple[Any, ...]] = type(record)
    for field, each in field_types(kind).items():
        with pytest.raises(TaskInvalidTypeError):
            _check_fields(record._replace(**{field: 1 if each.is_text else "1"}))  # type: ignore[arg-type]
        missing = record._replace(**{field: None})  # type: ignore[arg-type]
        if each.is_optional:
            _check_fields(missing)
        else:
            with pytest.raises(TaskMissingFieldError):
                _check_fields(missing)
