"""The list of commands."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from kron.cli.main import BAD, GOOD, one_line
from kron.cli.next import next_command

app = typer.Typer(
    name="kron",
    help="Kron decides when work runs, records every decision, and can prove it was right.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("next")(next_command)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"kron {version('kron-scheduler')}")
        raise typer.Exit


@app.callback()
def _kron(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Kron decides when work runs, records every decision, and can prove it was right."""
    if context.invoked_subcommand is None:
        print(context.get_help())


# The class of every complaint about usage; typer shows only this one of its children.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def call(arguments: Sequence[str] | None) -> int:
    """Run a command; bad usage becomes one line."""
    try:
        code = app(args=arguments, prog_name="kron", standalone_mode=False)
    except UsageError as error:
        print(f"kron: {_complaint(error)}", file=sys.stderr)
        return BAD
    except typer.Abort:
        return BAD
    return code if isinstance(code, int) else GOOD


def _complaint(error: Exception) -> str:
    message = error.format_message() if isinstance(error, typer.BadParameter) else str(error)
    if "unexpected extra argument" in message:
        message = f'{message}; put an expression in quotes, as in "0 9 * * 1-5"'
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "kron"
    return f"{one_line(message.rstrip('.'))} (see {command} --help)"
