"""The effective policy of a job under a front, and where each value comes from."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from kron.cli.support.job_file import JobFile
from kron.core.job.file import definitions_in
from kron.core.job.job import Job, named_policy
from kron.core.job.policy import FRONT_DEFAULTS, POLICY

# How a job file is read: as jobs, or as the schedule documents of a service.
JOB_FRONT, SERVICE_FRONT = "job", "service"
DEFAULT = "default of"
DEFAULT_OF = {JOB_FRONT: f"{DEFAULT} a job", SERVICE_FRONT: f"{DEFAULT} the service"}
# The settings of a service that are defaults of policy fields.
SETTINGS = {
    "overlap": "default_overlap_policy",
    "catchup": "default_catchup_policy",
    "jitter_ms": "default_jitter_ms",
}
# Where the value of each policy field comes from.
Origins: TypeAlias = Mapping[str, str]


def effective_of(file: JobFile, job: Job, front: str) -> tuple[Job, Origins]:
    """Return a job of a file with the policy it has under a front, and where each value comes from."""
    path, definition = next(
        (path, definition)
        for path, definition in definitions_in(file.content)
        if job.identity in (definition.get("identity"), definition.get("schedule_id"))
    )
    named = named_policy(definition)
    defaults = FRONT_DEFAULTS[front]
    values = {row.name: getattr(defaults, row.name) for row in POLICY.rows}
    origins = dict.fromkeys(values, DEFAULT_OF[front])
    if front == SERVICE_FRONT:
        for name, (value, origin) in _settings().items():
            values[name], origins[name] = value, origin
    for name, word in named.items():
        place = f"{path}.{word}".removeprefix(".")
        values[name], origins[name] = getattr(job.policy, name), f"{file.file}:{file.line_of(place)}"
    return replace(job, policy=replace(job.policy, **values)), origins


def _settings() -> dict[str, tuple[object, str]]:
    """Return the policy fields that the service's settings set, each with the setting's name."""
    from kron.fronts.service.settings import Settings, read_settings

    settings, plain = read_settings(os.environ, {}).settings, Settings()
    return {
        name: (POLICY[name].type.parse(getattr(settings, setting)), f"setting {setting}")
        for name, setting in SETTINGS.items()
        if getattr(settings, setting) != getattr(plain, setting)
    }
