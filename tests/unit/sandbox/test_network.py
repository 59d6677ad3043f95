"""What the network does to messages."""

from __future__ import annotations

from random import Random

from penstock.sandbox.event_loop import EventLoop, VirtualClock
from penstock.sandbox.network import Conditions, Network


def network(**conditions: float) -> tuple[EventLoop, Network]:
    loop = EventLoop(VirtualClock())
    return loop, Network(loop, Random(1), Conditions(**conditions))  # type: ignore[arg-type]


def arrivals(loop: EventLoop, net: Network, count: int = 100) -> list[int]:
    seen: list[int] = []
    for number in range(count):
        net.send("a", "b", lambda number=number: seen.append(number))  # type: ignore[misc]
    loop.run_until(lambda: False)
    return seen


def test_random_delays_let_messages_overtake_each_other() -> None:
    seen = arrivals(*network(delay_us_min=1, delay_us_max=1000))
    assert sorted(seen) == list(range(100))
    assert seen != sorted(seen)


def test_without_delay_messages_keep_their_order() -> None:
    assert arrivals(*network()) == list(range(100))


def test_messages_are_lost_and_doubled_as_often_as_told() -> None:
    loop, net = network(loss=0.3)
    assert 50 < len(arrivals(loop, net)) < 90
    assert net.lost == 100 - len(set(arrivals(*network(loss=0.3))))
    doubled = arrivals(*network(duplication=0.5))
    assert len(doubled) > 130
    assert set(doubled) == set(range(100))


def test_a_cut_loses_everything_until_it_is_mended() -> None:
    loop, net = network()
    net.cut(["a"], ["b", "c"])
    assert arrivals(loop, net, 5) == []
    assert net.cut_since("b", "a") is not None
    assert net.cut_since("b", "c") is None
    net.mend()
    assert arrivals(loop, net, 5) == [0, 1, 2, 3, 4]


def test_a_node_reaches_itself_always() -> None:
    loop, net = network(loss=1.0)
    seen: list[int] = []
    net.send("a", "a", lambda: seen.append(1))
    loop.run_until(lambda: False)
    assert seen == [1]


def test_a_slow_node_delays_both_directions() -> None:
    loop, net = network()
    net.slow_us["b"] = 500
    net.send("a", "b", lambda: None)
    net.send("b", "a", lambda: None)
    before = loop.now_us()
    loop.run_until(lambda: False)
    assert loop.now_us() - before == 500
