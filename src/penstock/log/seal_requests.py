"""Seal requests: somebody wants a log's newest file ended, because only files that nobody writes to can be replaced.

A request is an empty file in the log's directory. The running agent finds it when it next looks around, ends the file
and removes the request. Whoever asked waits for that, and takes the request back when nobody answers.
"""

from __future__ import annotations

from penstock.log.refusal import refused
from penstock.system.files import Files

NAME = "seal.request"


def ask(files: Files, directory: str) -> None:
    """Ask for the newest file to be ended. Asking twice is asking once."""
    path = f"{directory}/{NAME}"
    try:
        files.open(path, write=True, create=True).close()
    except OSError as error:
        raise refused(error, "asking for a file to be ended", path) from error


def waits(files: Files, directory: str) -> bool:
    """Whether somebody asks and has no answer yet. When that cannot be told nobody does; silence tells who asked."""
    try:
        return files.exists(f"{directory}/{NAME}")
    except OSError:
        return False


def done(files: Files, directory: str) -> None:
    """Answer, or take the request back."""
    path = f"{directory}/{NAME}"
    try:
        if files.exists(path):
            files.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise refused(error, "answering a request", path) from error
