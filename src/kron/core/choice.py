"""Choices: one of a few texts, with a name in the program."""

from enum import StrEnum


class Choice(StrEnum):
    """A choice that tables find as quickly as its text, and under it.

    An ordinary one computes its place from its name, anew for each question; a busy minute asks millions.
    """

    __hash__ = str.__hash__
