"""Options of a port: batches, precision, seed and cache, and how they become the vendor's."""

from __future__ import annotations

from porting.options.poptorch_options import require_precision, to_poptorch
from porting.options.port_options import DEVICES, PortOptions, is_count, read_requested_device

__all__ = ["DEVICES", "PortOptions", "is_count", "read_requested_device", "require_precision", "to_poptorch"]
