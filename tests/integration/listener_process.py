"""A listener as a process of its own: `python listener_process.py ROOT SOCKET [BUFFER_BYTES]`, until SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from penstock.serve.listener import Listener
from penstock.settings import ListenerSettings


async def main(root: str, path: str, buffer_bytes: int) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    settings = ListenerSettings(path=Path(path), client_buffer_bytes=buffer_bytes, commit_interval_s=0.002)
    async with Listener(root, settings):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1 << 20))
