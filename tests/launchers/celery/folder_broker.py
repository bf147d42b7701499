"""A broker for Celery that is a folder: what is published is there to be read, and workers consume it."""

import json
from base64 import b64decode
from pathlib import Path
from typing import Any, NamedTuple

from kron.launchers.celery.broker import Broker


class Published(NamedTuple):
    """One message, as a consumer would see it."""

    task: str
    task_id: str
    args: list[object]
    kwargs: dict[str, Any]
    kron: dict[str, Any]


class FolderBroker:
    """A folder and how it is addressed."""

    url = "filesystem://"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.options = dict.fromkeys(("data_folder_in", "data_folder_out", "control_folder"), str(folder))

    def broker(self, **fields: str) -> Broker:
        """Return it as a launcher knows it."""
        return Broker(url=self.url, options=self.options, **fields)

    def published(self) -> list[Published]:
        """Return the messages that are not consumed yet, the oldest first."""
        return [_read(file) for file in sorted(self.folder.glob("*.msg"))]

    def queues(self) -> set[str]:
        """Return the queues in which something is."""
        return {file.name.partition(".")[2].removesuffix(".msg") for file in self.folder.glob("*.msg")}


def _read(file: Path) -> Published:
    message = json.loads(file.read_text())
    args, kwargs, _ = json.loads(b64decode(message["body"]))
    headers = message["headers"]
    return Published(headers["task"], headers["id"], args, kwargs, headers["kron"])
