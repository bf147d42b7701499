"""`kron schema`: the JSON Schema of Kron's inputs."""

from typing import Annotated

import typer

from kron.cli.support.option import offer, one_of
from kron.cli.support.terminal import show_json
from kron.core.job.schema import SCHEMAS

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Schema to print: job or jobfile.",
        parser=one_of("schema", SCHEMAS),
        autocompletion=offer(lambda: SCHEMAS),
    ),
]


def schema_command(name: Name = "job") -> None:
    """Print the JSON Schema of a job, or of a job file.

    \b
    Examples:
      kron schema job > job.schema.json
      kron schema jobfile
    """  # noqa: D301
    show_json(SCHEMAS[name])
