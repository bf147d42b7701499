"""Choices: string enums for the closed sets of values in definitions and records."""

from enum import StrEnum


class Choice(StrEnum):
    """A string enum that hashes like its value.

    An ordinary enum computes its hash from its name in Python code, and a busy minute needs millions.
    """

    __hash__ = str.__hash__
