"""The list of commands, and how one is called."""

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated

import typer

from kron.cli.main import BAD, GOOD, complain
from kron.cli.support.secret_check import check_words

# Each command and the function or group that is it. Only the one asked for is imported, so that it starts
# quickly; groups come last because that is where they are listed.
COMMANDS = {
    "next": "kron.cli.commands.next:next_command",
    "explain": "kron.cli.commands.explain:explain_command",
    "lint": "kron.cli.commands.lint:lint_command",
    "migrate": "kron.cli.commands.migrate:migrate_command",
    "schema": "kron.cli.commands.schema:schema_command",
    "verify": "kron.cli.commands.verify:verify_command",
    "simulate": "kron.cli.commands.simulate:simulate_command",
    "plan": "kron.cli.commands.plan:plan_command",
    "conform": "kron.cli.commands.conform:conform_command",
    "serve": "kron.cli.commands.serve:serve_command",
    "worker": "kron.cli.commands.worker:worker_command",
    "config": "kron.cli.commands.config:config_command",
    "status": "kron.cli.commands.status:status_command",
    "why": "kron.cli.commands.why:why_command",
    "pause": "kron.cli.commands.pause:pause_command",
    "resume": "kron.cli.commands.pause:resume_command",
    "run": "kron.cli.commands.run:run_command",
    "audit": "kron.cli.commands.audit:audit_command",
    "token": "kron.cli.commands.token:app",
    "schedules": "kron.cli.commands.schedules:app",
    "runs": "kron.cli.commands.runs:app",
}

# Those that take one expression, which a shell takes apart unless it stands in quotes.
TAKE_EXPRESSION = ("next", "explain")

# Set by the scripts that a shell completes with.
COMPLETION = "_KRON_COMPLETE"

# The class of every complaint about usage; typer shows only this one of its children.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def call(arguments: Sequence[str] | None) -> int:
    """Run a command; bad usage becomes one line."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    check_words(words)
    if COMPLETION in os.environ:
        # Shells read one offer from each line, so that no description may be broken.
        os.environ["TERMINAL_WIDTH"] = "10000"
    try:
        code = build(_asked(words))(args=words, prog_name="kron", standalone_mode=False)
    except UsageError as error:
        complain(_complaint(error))
        return BAD
    except SystemExit as end:
        # Typer ends the program where the reader of its output has gone; that is for `run` to judge.
        if isinstance(end.__context__, BrokenPipeError):
            raise end.__context__ from None
        raise
    except typer.Abort:
        return BAD
    return code if isinstance(code, int) else GOOD


def _asked(words: list[str]) -> str | None:
    """Return the one command that is needed, also where a shell asks how a line goes on; None for all."""
    if COMPLETION in os.environ:
        line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
        words = line.split()[1:]
        # The word the cursor stands behind may still become another one.
        if len(words) == 1 and not line[-1].isspace():
            return None
    return words[0] if words and words[0] in COMMANDS else None


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
        command = _load(COMMANDS[name])
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def _load(place: str) -> Callable[..., object] | typer.Typer:
    module, _, name = place.partition(":")
    command: Callable[..., object] | typer.Typer = getattr(import_module(module), name)
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
    context = getattr(error, "ctx", None)
    if "unexpected extra argument" in message and context and context.info_name in TAKE_EXPRESSION:
        message = f'{message}; put an expression in quotes, as in "0 9 * * 1-5"'
    command = context.command_path if context else "kron"
    return f"{message.rstrip('.')} (see {command} --help)"
