"""The code around a refused operator tells of the cause: the remedy is then that of the function or of the layer."""

from __future__ import annotations

from types import FrameType
from typing import Iterator, List, Optional, Sequence

import torch
from torch import nn

from ..diagnostics.places import is_user_file
from ..host_tensors import read_registry
from ..torch_insides.modules import NORMS_WITH_STATE

__all__ = ["PADDED_FORM", "find_layer_with", "list_remedies"]

PADDED_FORM = "give the layer the padded batch, and blank out what it returns for the padding"
"""What takes the place of packed sequences."""

# what reads a value, or brings a tensor to the host
_OF_THE_HOST = ("C001", "C004")


def list_remedies(code: str, frame: Optional[FrameType], usual: Sequence[str]) -> List[str]:
    """Return the remedies for a refusal of `code` by an operator that `frame` calls; `usual` are those of the code."""
    packs = False
    for caller in _iter_callers(frame) if code in _OF_THE_HOST else ():
        norm = caller.f_locals.get("self")
        if isinstance(norm, NORMS_WITH_STATE) and norm.momentum is None:
            kind = type(norm).__name__
            return [f"give the layer a momentum, `{kind}(..., momentum=0.1)`: without it, it reads a count of calls"]
        # lengths of packed sequences have to be on the host, which the function asks of its caller
        packs = packs or "pack_padded_sequence" in caller.f_code.co_names and is_user_file(caller.f_code.co_filename)
    return [f"instead of `pack_padded_sequence`, {PADDED_FORM}"] if packs else list(usual)


def find_layer_with(tensor: torch.Tensor, frame: Optional[FrameType]) -> Optional[str]:
    """Return the class of the module that runs in `frame` with `tensor` as its own parameter or buffer, if one does."""
    for caller in _iter_callers(frame):
        layer = caller.f_locals.get("self")
        if isinstance(layer, nn.Module):
            held = [each for name in ("_parameters", "_buffers") for each in read_registry(layer, name).values()]
            if any(each is tensor for each in held):
                return type(layer).__name__
    return None


def _iter_callers(frame: Optional[FrameType]) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
