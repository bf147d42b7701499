"""The list of commands, and how one is called."""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated

import typer

from kron.cli.main import BAD, GOOD, one_line

# Each command and the function that is it. Only the one asked for is imported, so that it starts quickly.
COMMANDS = {
    "next": "kron.cli.next:next_command",
    "explain": "kron.cli.explain:explain_command",
    "lint": "kron.cli.lint:lint_command",
    "schema": "kron.cli.schema:schema_command",
}

# The class of every complaint about usage; typer shows only this one of its children.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def call(arguments: Sequence[str] | None) -> int:
    """Run a command; bad usage becomes one line."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    asked = words[0] if words and words[0] in COMMANDS else None
    try:
        code = build(asked)(args=words, prog_name="kron", standalone_mode=False)
    except UsageError as error:
        print(f"kron: {_complaint(error)}", file=sys.stderr)
        return BAD
    except typer.Abort:
        return BAD
    return code if isinstance(code, int) else GOOD


def build(asked: str | None = None) -> typer.Typer:
    """Return the application with one command, or with all of them."""
    app = typer.Typer(
        name="kron",
        invoke_without_command=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_kron)
    for name in [asked] if asked else COMMANDS:
        app.command(name)(_load(COMMANDS[name]))
    return app


def _load(place: str) -> Callable[..., object]:
    module, _, name = place.partition(":")
    command: Callable[..., object] = getattr(import_module(module), name)
    return command


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"kron {version('kron-scheduler')}")
        raise typer.Exit


def _kron(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Kron decides when work runs, records every decision, and can prove it was right."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def _complaint(error: Exception) -> str:
    message = error.format_message() if isinstance(error, typer.BadParameter) else str(error)
    if "unexpected extra argument" in message:
        message = f'{message}; put an expression in quotes, as in "0 9 * * 1-5"'
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "kron"
    return f"{one_line(message.rstrip('.'))} (see {command} --help)"
