"""A listener in a thread of its own, for tests whose clients block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.log.names import directory_name
from penstock.serve.client import Client
from penstock.serve.listener import Listener
from penstock.serve.protocol import Acked, Changes, Format, Hello
from penstock.settings import ListenerSettings, RetentionSettings
from tests.numbered import TABLE


def log_directory(root: Path) -> str:
    """Where the log of the numbered table is."""
    return str(root / directory_name(TABLE))


@contextmanager
def listening(
    root: Path, *, retention: RetentionSettings | None = None, **settings: Any
) -> Iterator[tuple[Listener, Callable[[], int]]]:
    """A running listener, and the number of its clients. Without an address it takes a Unix socket in `root`."""
    if not {"path", "port"} & set(settings):
        settings["path"] = root / "socket"
    listener = Listener(str(root), ListenerSettings(**settings), retention=retention)
    started = threading.Event()
    failure: list[BaseException] = []
    stop: list[Callable[[], object]] = []

    async def main() -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        stop.append(lambda: loop.call_soon_threadsafe(ended.set))
        async with listener:
            started.set()
            await ended.wait()

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:  # noqa: BLE001 - it is raised again in the test's own thread.
            failure.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=run)
    thread.start()
    started.wait()
    try:
        if failure:
            raise failure[0]
        yield listener, lambda: len(listener._clients)
    finally:
        if stop and not failure:
            stop[0]()
        thread.join()
    if failure:
        raise failure[0]


def connect(listener: Listener, subscription: str | None = None, **hello: Any) -> Client:
    return Client(listener.address, Hello(TABLE, subscription=subscription, **hello))


def receive(client: Client, count: int, timeout_s: float = 30) -> list[int]:
    """The numbers of the next `count` changes, or more when a frame holds more."""
    got: list[int] = []
    for changes in client.changes(timeout_s):
        got += [change.key["id"] for change in client.decode(changes)]
        if len(got) >= count:
            return got
    raise AssertionError


def receive_frames(client: Client, count: int) -> list[Changes]:
    """Frames of changes until `count` changes came."""
    frames: list[Changes] = []
    for changes in client.changes(30):
        frames.append(changes)
        if sum(frame.count for frame in frames) >= count:
            return frames
    raise AssertionError


def wait_acked(client: Client) -> Acked:
    """The next answer to an acknowledgement."""
    while True:
        message = client.receive(30)
        if isinstance(message, Acked):
            return message


JSON = Format.JSON
