"""Precision: what float16, mixed precision and bfloat16 change in a model, its inputs, its outputs and its loss."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Iterator, MutableMapping, Optional, Tuple

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from porting.diagnostics import Finding
from porting.options import PortOptions, require_precision

__all__ = ["PrecisionPlan", "apply_precision", "cast_floats", "embeddings_cast"]


@dataclass(frozen=True)
class PrecisionPlan:
    """The casts that `LossInForward` makes (None: no cast), and what the user should know about them."""

    input_dtype: Optional[torch.dtype] = None
    loss_dtype: Optional[torch.dtype] = None
    output_dtype: Optional[torch.dtype] = None
    findings: Tuple[Finding, ...] = ()


def apply_precision(model: nn.Module, options: PortOptions, backend: Any) -> PrecisionPlan:
    """Bring `model` into the precision of `options` and return the casts that belong to it.

    float32 changes nothing. float16 converts the model's own floating-point parameters and buffers in place: they
    stay the same objects, so that an optimizer still holds them. mixed keeps float32 weights: the inputs and what
    embeddings look up become half, and the device casts each weight to the type of the activation that it meets.
    bfloat16 keeps float32 weights and inputs too: the backend computes matrix products and convolutions in
    bfloat16, and the outputs become float32 again. The loss is computed in float32 in any case. Raises OptionError
    P001 for a precision that `backend` does not have, before anything changes.
    """
    require_precision(options, backend)
    if options.precision == "float32":
        return PrecisionPlan()
    if options.precision == "bfloat16":
        return PrecisionPlan(output_dtype=torch.float32, findings=(_not_on_ipu(),))
    findings: Tuple[Finding, ...] = ()
    if options.precision == "float16":
        findings = _convert_to_half(model)
    return PrecisionPlan(input_dtype=torch.float16, loss_dtype=torch.float32, findings=findings)


def _not_on_ipu() -> Finding:
    return Finding(
        "P006",
        notes="matrix products and convolutions are in bfloat16, weights and loss in float32, as under autocast",
        help="for results that an IPU can repeat use `precision='mixed'` or `'float16'`",
    )


def _convert_to_half(model: nn.Module) -> Tuple[Finding, ...]:
    converted = [
        tensor
        for tensor in [*model.parameters(), *model.buffers()]
        if tensor.dtype.is_floating_point and tensor.dtype != torch.float16
    ]
    if not converted:
        return ()
    model.half()
    num_elements = sum(tensor.numel() for tensor in converted if not is_lazy(tensor))
    fact = f"{len(converted)} parameters and buffers with {num_elements} elements were converted in place"
    return (Finding("P003", message="the weights were converted to float16", notes=fact, help=_KEEP_WEIGHTS),)


_KEEP_WEIGHTS = "use `precision='mixed'` to keep them in float32; `model.float()` converts them back, less precise"


@contextmanager
def embeddings_cast(model: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Cast what the embeddings of `model` look up to `dtype` while the context lasts.

    Tokens are integers, which no cast of the inputs reaches: the first numbers of a language model are its embeddings.

    >>> model = nn.Embedding(3, 2)
    >>> with embeddings_cast(model, torch.float16):
    ...     model(torch.tensor([1])).dtype
    torch.float16
    """

    def cast(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        return cast_floats(output, dtype)

    embeddings = [module for module in model.modules() if isinstance(module, (nn.Embedding, nn.EmbeddingBag))]
    hooks = [module.register_forward_hook(cast) for module in embeddings]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def cast_floats(value: Any, dtype: torch.dtype) -> Any:
    """Cast the floating-point tensors inside tuples, lists, named tuples and dictionaries.

    Everything else passes through; containers are copied, never changed.

    >>> cast_floats((torch.ones(1), {"label": torch.tensor(1)}), torch.float16)
    (tensor([1.], dtype=torch.float16), {'label': tensor(1)})
    """
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() and value.dtype != dtype else value
    if isinstance(value, MutableMapping):
        # a copy keeps what else a subclass carries: a default factory, the fields of a model's output
        changed = copy.copy(value)
        for key, item in value.items():
            changed[key] = cast_floats(item, dtype)
        return changed
    if isinstance(value, (tuple, list)):
        items = [cast_floats(item, dtype) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value
