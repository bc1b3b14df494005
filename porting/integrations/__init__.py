"""Run trainer libraries on a device: Ignite, Lightning, transformers' `Trainer` and accelerate, each an extra."""

from __future__ import annotations

from .device_calls import DeviceCalls, calls_on_host

__all__ = ["DeviceCalls", "calls_on_host"]
