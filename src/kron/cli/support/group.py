"""Groups of commands; where none is named, `list` is meant."""

from collections.abc import Callable, Mapping

import typer
from typer.core import TyperGroup

HELP = ("-h", "--help")


class ListGroup(TyperGroup):
    """A group of which `list` is meant where no command is named."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Put the usual command's name before words that name none."""
        return super().parse_args(ctx, ["list", *args] if self.means_list(args) else args)

    def means_list(self, args: list[str]) -> bool:
        """Say whether words begin with no command."""
        return not args or (args[0].startswith("-") and args[0] not in HELP)


class WordGroup(ListGroup):
    """A group of which `list` also takes a word, so that any that names no command is for it."""

    def means_list(self, args: list[str]) -> bool:
        """Say whether words begin with no command."""
        return not args or args[0] not in (*self.commands, *HELP)


def group_of(
    about: str, commands: Mapping[str, Callable[..., int]], *, kind: type[ListGroup] = ListGroup
) -> typer.Typer:
    """Return a group of commands."""
    app = typer.Typer(
        help=about,
        cls=kind,
        rich_markup_mode=None,
        context_settings={"help_option_names": list(HELP)},
    )
    for name, command in commands.items():
        app.command(name)(command)
    return app
