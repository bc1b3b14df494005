"""Answer the numbers that LayerDrop draws at rate 0 and compares on the host: none is below that rate.

The remedy `layer-drop` has this function.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Optional

import torch

from porting.diagnostics import CaptureError
from porting.remedies.entries import Fallback

__all__ = ["LayerDraw", "draw_for_layer"]

_MODELS = "transformers.models."
_BETWEEN = ("porting.remedies.", "porting.support.function_modes", "poptorch.")


class LayerDraw:
    """What `torch.rand([])` gives to a model of transformers: a number from [0, 1) that can be compared with 0.

    >>> LayerDraw() < 0.0
    False
    """

    def __lt__(self, rate: float) -> bool:
        """Tell that it is not below a rate of 0. Raises CaptureError C001 for others, since it is not drawn yet."""
        if isinstance(rate, (int, float)) and rate <= 0:
            return False
        raise CaptureError.at_caller(
            "C001",
            message=f"LayerDrop at rate {rate} decides on the host which layers run",
            label="a compiled step has the same layers each time",
            help="switch it off, as in `config.layerdrop = 0.0` (of some models `encoder_layerdrop` and "
            "`decoder_layerdrop`), before the model is made",
        )


def draw_for_layer(*size: Any, **kwargs: Any) -> Any:
    """Answer `torch.rand([])` where a model of transformers asks; anything else is torch's to answer."""
    if size != ([],) or set(kwargs) - {"device"}:
        return Fallback
    frame: Optional[FrameType] = sys._getframe(1)
    # out of this package, and of what PopTorch puts around torch's factories
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith(_BETWEEN):
        frame = frame.f_back
    is_models = frame is not None and str(frame.f_globals.get("__name__", "")).startswith(_MODELS)
    return LayerDraw() if is_models else Fallback


FUNCTIONS = {torch.rand: draw_for_layer}
