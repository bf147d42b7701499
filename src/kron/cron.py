"""Cron expressions: `kron.cron.parse("0 9 * * 1-5").describe()`."""

from kron.core.cron.dialect import DIALECTS, parse, parse_field
from kron.core.cron.expression import Expression
from kron.core.cron.field import Field
from kron.core.errors import CronCalculationError, FieldParseError, InvalidCronExpressionError

__all__ = [
    "DIALECTS",
    "CronCalculationError",
    "Expression",
    "Field",
    "FieldParseError",
    "InvalidCronExpressionError",
    "parse",
    "parse_field",
]
