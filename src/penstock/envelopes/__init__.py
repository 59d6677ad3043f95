"""Envelopes: records of the pipeline as the keys, values and headers that consumers of known kinds of events expect.

`contract` says what an envelope is: `events` makes Debezium's, with a file for each of its connectors, and
`cloudevents` that of CloudEvents. `layout` says which fields there are and where in the Arrow columns each comes from,
`connect` what they look like to Kafka Connect, and the kernels write them as JSON, Avro, Protobuf or text, a whole
batch at a time.
"""

from __future__ import annotations

from penstock.system import kernels

_KERNELS = ("_identity", "_tree", "_json_text", "_java_text", "_avro_binary", "_protobuf")

native: bool = kernels.choose(__name__, __file__, _KERNELS)
