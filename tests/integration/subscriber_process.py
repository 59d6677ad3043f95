"""A subscriber as a process of its own: `python subscriber_process.py DIRECTORY NAME UNTIL`.

It writes a line per step to its output: `from N` once (how many changes were committed before), then `got N` per change
and `done N` after each commit. It ends by itself when it has committed change UNTIL.
"""

from __future__ import annotations

import sys

from penstock.formats import avro
from penstock.log.subscription import Subscription


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(directory: str, name: str, until: int) -> None:
    with Subscription.open(directory, name) as subscription:
        say(f"from {subscription.position}")
        while True:
            batch = subscription.next()
            assert batch is not None
            numbers = [change.key["id"] for change in avro.decode(batch)]
            for number in numbers:
                say(f"got {number}")
            subscription.commit(batch.last)
            say(f"done {numbers[-1]}")
            if numbers[-1] >= until:
                return


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
