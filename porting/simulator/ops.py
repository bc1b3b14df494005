"""Export the functions and contexts that `forward` calls, as `poptorch.ops`; they are defined in `_operators`."""

from __future__ import annotations

from ._operators.annotations import (
    identity_loss,
    nop,
    recomputationCheckpoint,
    serializedMatMul,
    set_available_memory,
    set_overlap_for_input,
    set_overlap_for_output,
)
from ._operators.control_flow import cond, for_loop
from ._operators.cpu_op import CPU
from ._operators.ctc_decoder import ctc_beam_search_decoder
from ._operators.custom_ops import ATTR_PREFIX, accessAttributes, attributes_lists, custom_op
from ._operators.dynamic_slices import dynamic_slice, dynamic_update
from ._operators.point_ops import fps, nearest
from ._operators.print_tensor import ipu_print_tensor
from ._scopes.blocks import (
    BeginBlock,
    Block,
    BlockFunction,
    BlockId,
    LegacyBeginBlockFn,
    _BlockHook,  # noqa: F401 - programs look for hooks of this class
    removeBlocks,
)
from ._scopes.graph_scopes import Attribute, NameScope
from ._scopes.multi_conv import MultiConv

__all__ = [
    "ATTR_PREFIX",
    "CPU",
    "Attribute",
    "BeginBlock",
    "Block",
    "BlockFunction",
    "BlockId",
    "LegacyBeginBlockFn",
    "MultiConv",
    "NameScope",
    "accessAttributes",
    "attributes_lists",
    "cond",
    "ctc_beam_search_decoder",
    "custom_op",
    "dynamic_slice",
    "dynamic_update",
    "for_loop",
    "fps",
    "identity_loss",
    "ipu_print_tensor",
    "nearest",
    "nop",
    "recomputationCheckpoint",
    "removeBlocks",
    "serializedMatMul",
    "set_available_memory",
    "set_overlap_for_input",
    "set_overlap_for_output",
]
