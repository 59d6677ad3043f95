"""Settings of the pipeline's sinks, one section each."""

from __future__ import annotations
