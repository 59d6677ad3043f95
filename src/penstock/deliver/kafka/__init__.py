"""The Kafka sink: topics, a schema registry, and producers with and without transactions."""

from __future__ import annotations

from penstock.system import kernels

native: bool = kernels.choose(__name__, __file__, ("_send_loop",))
