"""`penstock listen`: the socket from which local daemons are pushed changes."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import output
from penstock.cli.output import JsonOption
from penstock.cli.places import DirectoryArgument, check_directory
from penstock.cli.sql import ConfigOption
from penstock.errors import InvalidInput
from penstock.system.addresses import refusal

if TYPE_CHECKING:
    from penstock.serve.listener import Listener

PathOption = Annotated[str | None, typer.Option("--path", help="A Unix socket to listen on instead of host and port.")]


def listen(
    directory: DirectoryArgument, path: PathOption = None, config: ConfigOption = None, json: JsonOption = False
) -> None:
    """Push the changes of the logs in DIR to clients that connect, until Ctrl-C or SIGTERM."""
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
    asyncio.run(_listen(Listener(directory, wanted, retention=settings.retention), json))


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
