"""Preflight: what can be found wrong with a pipeline's settings before Spark is started, which takes its time."""

from __future__ import annotations

import os

from penstock.deliver.choice import make_sinks
from penstock.errors import InvalidSetting
from penstock.filters.functions import Functions
from penstock.settings import Settings
from penstock.transforms.transforms import Transforms


def check(settings: Settings) -> None:
    """Refuse settings that cannot work, as far as this machine can tell. Nothing is made and nobody is asked."""
    make_sinks(settings)
    Transforms(settings.transform, Functions.load(settings.functions))
    check_source(settings)


def check_source(settings: Settings) -> None:
    """Refuse logs and agents that nobody can read. The logs of an agent that is started beside this may come yet."""
    pipeline = settings.pipeline
    if not pipeline.logs and not pipeline.agents:
        raise InvalidSetting("nothing to read: name directories of logs, or agents", setting="pipeline.logs")
    own = os.path.abspath(settings.agent.directory)
    for directory in pipeline.logs:
        if os.path.isdir(directory):
            if not os.access(directory, os.R_OK | os.X_OK):
                raise InvalidSetting("this user may not read the logs", setting="pipeline.logs", directory=directory)
        elif os.path.exists(directory):
            raise InvalidSetting("this is no directory", setting="pipeline.logs", directory=directory)
        elif os.path.abspath(directory) != own:
            raise InvalidSetting("no such directory", setting="pipeline.logs", directory=directory)
    for address in pipeline.agents:
        if not address.startswith(("https://", "http://")):
            raise InvalidSetting("an agent's address begins with https:// or http://", setting="pipeline.agents")
    for name in ("agents_token_file", "agents_ca_file"):
        file = getattr(pipeline, name)
        if file is not None and not os.access(file, os.R_OK):
            raise InvalidSetting("this file cannot be read", setting=f"pipeline.{name}", file=file)
