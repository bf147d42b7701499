"""`kron config`: the effective settings of the service and their sources."""

import json
import os

from kron.cli.main import GOOD
from kron.cli.support.option import AsJson, Config
from kron.cli.support.terminal import say, show_json
from kron.fronts.service.settings import read_settings


def config_command(config: Config = None, as_json: AsJson = False) -> int:
    """Print the settings in effect, each with its source.

    Settings come from a TOML file, the environment (KRON_TICK_MS, ...) and command options; later sources
    override earlier ones.

    \b
    Examples:
      kron config
      KRON_TICK_MS=500 kron config --json
      kron config --config kron.toml
    """  # noqa: D301
    lines = read_settings(os.environ, {}, file=config).rows()
    if as_json:
        show_json(lines)
        return GOOD
    for line in lines:
        value = json.dumps(line["value"], ensure_ascii=False)
        place = line["place"] or line["source"]
        say(f"{line['name']:24} {value:30} {place}")
    return GOOD
