"""Time in the sandbox: virtual time jumps, real time waits, and order is the order of scheduling."""

from __future__ import annotations

from penstock.sandbox.event_loop import START_US, EventLoop, SkewedClock, VirtualClock


class HandClock:
    """Real time as far as the loop can tell, moved by the waiting itself."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.waited: list[float] = []

    def now_us(self) -> int:
        return int(self.seconds * 1e6)

    def monotonic(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        # A little more, as a real sleep does.
        self.seconds += seconds + 1e-6


def test_virtual_time_jumps_to_the_next_event() -> None:
    clock = VirtualClock()
    loop = EventLoop(clock)
    seen: list[tuple[str, int]] = []
    for name, delay in (("late", 5_000_000), ("early", 1), ("same", 1)):
        loop.schedule(delay, lambda name=name: seen.append((name, clock.now_us() - START_US)))  # type: ignore[misc]
    loop.run_until(lambda: False)
    assert seen == [("early", 1), ("same", 1), ("late", 5_000_000)]
    assert clock.monotonic() == 5.0
    assert loop.idle


def test_a_limit_lets_just_that_much_time_pass() -> None:
    clock = VirtualClock()
    loop = EventLoop(clock)
    seen: list[int] = []
    loop.schedule(10, lambda: seen.append(1))
    loop.schedule(30, lambda: seen.append(2))
    loop.run_for(20)
    assert seen == [1]
    assert clock.now_us() == START_US + 20
    assert not loop.run_until(lambda: False, limit_us=5)


def test_in_real_time_an_event_waits_for_its_moment() -> None:
    clock = HandClock()
    loop = EventLoop(clock, wait=clock.wait)
    seen: list[int] = []
    loop.schedule(0, lambda: seen.append(1))
    loop.schedule(2_000_000, lambda: seen.append(2))
    assert loop.step()
    assert not loop.step()
    assert loop.idle
    assert loop.run_until(lambda: len(seen) == 2)
    assert seen == [1, 2]
    assert len(clock.waited) == 1
    assert 1.9 < clock.waited[0] <= 2.0


def test_a_skewed_clock_is_wrong_by_its_skew() -> None:
    clock = VirtualClock()
    skewed = SkewedClock(clock, -7)
    assert skewed.now_us() == clock.now_us() - 7
    skewed.skew_us = 5
    assert skewed.now_us() == clock.now_us() + 5
    assert skewed.monotonic() == clock.monotonic()
