"""Define the options of a port, and write them as the vendor's.

Programs make `PortOptions`; ports, plans and the command line read them.
"""

from __future__ import annotations

from porting.options.computation_order import POLICIES, ComputationOrder, is_computation_order, refuse_order
from porting.options.devices import DEVICES, load_backend, read_requested_device, register_backend
from porting.options.poptorch_options import require_precision, to_poptorch
from porting.options.port_options import PortOptions, is_count, read_recomputation

__all__ = [
    "DEVICES",
    "POLICIES",
    "ComputationOrder",
    "PortOptions",
    "is_computation_order",
    "is_count",
    "load_backend",
    "read_recomputation",
    "read_requested_device",
    "refuse_order",
    "register_backend",
    "require_precision",
    "to_poptorch",
]
