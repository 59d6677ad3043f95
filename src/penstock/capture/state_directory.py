"""The agent's state directory: where it is, and who holds it."""

from __future__ import annotations

from penstock.errors import LogLocked
from penstock.log.lock import try_lock
from penstock.log.refusal import refused
from penstock.settings import Settings
from penstock.settings.cassandra import AGENT_STATE
from penstock.system.files import File, Files, make_durable_directory

LOCK = "agent.lock"


def state_directory(settings: Settings) -> str:
    """Where the agent's state is."""
    chosen = settings.agent.state_directory
    return str(settings.agent.directory / AGENT_STATE if chosen is None else chosen)


def take_lock(files: Files, directory: str) -> File:
    """Be the only agent with this state, as long as the file is open."""
    try:
        make_durable_directory(files, directory)
    except OSError as error:
        raise refused(error, "making the agent's state directory", directory) from error
    held = try_lock(files, f"{directory}/{LOCK}", "locking the agent's state")
    if held is None:
        raise LogLocked("another agent uses this state directory", directory=directory)
    return held
