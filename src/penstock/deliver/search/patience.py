"""Patience: waiting for a target that is busy or away, longer each time, and saying so once per outage."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

import structlog

from penstock.deliver.outages import Waiting
from penstock.errors import DeliveryFailed

log = structlog.get_logger()

_FIRST_S = 0.1


class Patience:
    """How long to wait before asking again. An outage begins with the first `wait` and ends with `over`."""

    def __init__(
        self,
        wait_s_max: float,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        random: Random | None = None,
        waiting: Waiting | None = None,
        given_up: Callable[[], bool] = lambda: False,
    ) -> None:
        self._waiting = waiting or Waiting(None, "search", 0)
        self._wait_s_max = wait_s_max
        self._sleep = sleep
        self._clock = clock
        self._given_up = given_up
        self._random = random or Random()  # noqa: S311 - spreads retries, hides nothing
        self._wait_s = 0.0
        self._since: float | None = None

    def wait(self, reason: str, **place: object) -> None:
        """Wait before the next try; raises when there is to be none."""
        if self._given_up():
            raise DeliveryFailed(f"the search cluster is not waited for any longer: {reason}", **place)
        if self._since is None:
            self._since = self._clock()
            log.warning("search cluster does not take documents, waiting", reason=reason, **place)
        self._waiting.again(reason)
        self._wait_s = min(max(_FIRST_S, 2 * self._wait_s), self._wait_s_max)
        # Tasks that were turned away together should not come back together.
        self._sleep(self._wait_s * self._random.uniform(0.5, 1.0))

    def over(self) -> None:
        """The target has taken something again."""
        if self._since is not None:
            log.info("search cluster takes documents again", waited_s=round(self._clock() - self._since, 1))
            self._waiting.over()
        self._since = None
        self._wait_s = 0.0
