"""The throttle: rows become time."""

from __future__ import annotations

from penstock.capture.cassandra.snapshot.throttle import Throttle


class HandClock:
    """A clock that stands until it is turned."""

    def __init__(self) -> None:
        self.time = 100.0

    def monotonic(self) -> float:
        return self.time

    def now_us(self) -> int:
        return int(self.time * 10**6)


def test_without_a_rate_nobody_waits() -> None:
    assert Throttle(None, HandClock()).take(10**9) == 0.0


def test_rows_are_paid_for_with_time() -> None:
    throttle = Throttle(1000.0, HandClock())
    assert throttle.take(500) == 0.5
    # Another worker, at the same moment, waits behind the first.
    assert throttle.take(250) == 0.75


def test_time_that_passed_is_taken_into_account() -> None:
    clock = HandClock()
    throttle = Throttle(1000.0, clock)
    throttle.take(1000)
    clock.time += 0.75
    assert throttle.take(250) == 0.5


def test_idle_time_is_not_saved_up() -> None:
    clock = HandClock()
    throttle = Throttle(1000.0, clock)
    throttle.take(10)
    clock.time += 3600
    assert throttle.take(2000) == 2.0
