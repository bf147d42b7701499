"""`kron schema`: what Kron reads, as JSON Schema."""

import json
from typing import Annotated

import typer

from kron.cli.support.option import offer
from kron.core.errors import check_choice
from kron.core.job.schema import SCHEMAS

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="What to describe: job or jobfile.", autocompletion=offer(lambda: SCHEMAS)
    ),
]


def schema_command(name: Name = "job") -> None:
    """Print the JSON Schema of a job, or of a file of jobs.

    \b
    Examples:
      kron schema job > job.schema.json
      kron schema jobfile
    """  # noqa: D301
    check_choice("schema", name, tuple(SCHEMAS))
    print(json.dumps(SCHEMAS[name], indent=2))
