"""`penstock listen`: the socket from which local daemons are pushed changes.

It looks after the logs as an agent does, caps by the disk included, for otherwise nobody may. In the directory of an
agent it deletes nothing: that is the agent's, by the agent's settings, also while it is stopped.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.output import JsonOption
from penstock.cli.places import DirectoryArgument, check_directory
from penstock.cli.sql import ConfigOption
from penstock.errors import InvalidInput
from penstock.settings.cassandra import AGENT_STATE
from penstock.system.addresses import refusal

if TYPE_CHECKING:
    from penstock.serve.listener import Listener

PathOption = Annotated[str | None, typer.Option("--path", help="A Unix socket to listen on instead of host and port.")]


def listen(
    directory: DirectoryArgument, path: PathOption = None, config: ConfigOption = None, json: JsonOption = False
) -> None:
    """Push the changes of the logs in DIR to clients that connect, until Ctrl-C or SIGTERM."""
    from penstock.log.upkeep import Upkeep
    from penstock.serve.listener import Listener
    from penstock.settings import ListenerSettings, load

    if (reason := refusal(directory)) is not None:
        raise InvalidInput(reason)
    settings = load(config)
    check_directory(directory)
    output.warn_of_plain_kernels()
    wanted = settings.listener
    if path is not None:
        wanted = ListenerSettings.model_validate({**wanted.model_dump(), "path": path})
    agents = os.path.isdir(os.path.join(directory, AGENT_STATE))
    with nullcontext() if agents else Upkeep(directory, settings.retention).running():
        asyncio.run(_listen(Listener(directory, wanted), json))


async def _listen(listener: Listener, json: bool) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with listener:
        if json:
            output.emit({"listening": listener.address})
        else:
            output.line(f"listening on {listener.address}; Ctrl-C ends")
        output.flush()
        await ended.wait()
