"""Convert a model, its inputs, its outputs and its loss for float16, mixed precision and bfloat16.

`to_ipu` converts the model, and `LossInForward` makes the casts of each call.
"""

from __future__ import annotations

import copy
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Dict, Iterator, Mapping, MutableMapping, Optional, Tuple

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from porting.diagnostics import Finding
from porting.host_tensors import read_registry, walk_modules
from porting.options import PortOptions, require_precision
from porting.structure import Structure, is_record, read_fields, replace_fields
from porting.support.function_modes import Args, Kwargs
from porting.torch_insides.modules import CONVOLUTIONS

__all__ = ["PrecisionPlan", "apply_precision", "cast_floats", "cast_weights"]


@dataclass(frozen=True)
class PrecisionPlan:
    """The casts that `LossInForward` makes (None: no cast), and what the user should know about them."""

    input_dtype: Optional[torch.dtype] = None
    loss_dtype: Optional[torch.dtype] = None
    output_dtype: Optional[torch.dtype] = None
    findings: Tuple[Finding, ...] = ()


def apply_precision(model: nn.Module, options: PortOptions, backend: ModuleType) -> PrecisionPlan:
    """Bring `model` into the precision of `options` and return the casts that belong to it.

    float32 changes nothing. float16 converts the model's own floating-point parameters and buffers in place: they
    stay the same objects, so that an optimizer still holds them. mixed keeps float32 weights: the inputs become half,
    and so do the weights that `forward` sees (`cast_weights`).
    bfloat16 keeps float32 weights and inputs too: the backend computes matrix products and convolutions in
    bfloat16, and the outputs become float32 again. The loss is computed in float32 in any case. Raises OptionError
    P001 for a precision that `backend` does not have, before anything changes.
    """
    require_precision(options, backend)
    if options.precision == "float32":
        return PrecisionPlan()
    if options.precision == "bfloat16":
        finding = Finding(
            "P006",
            notes="matrix products and convolutions are in bfloat16, weights and loss in float32, as under autocast",
            help="for results that an IPU can repeat use `precision='mixed'` or `'float16'`",
        )
        return PrecisionPlan(output_dtype=torch.float32, findings=(finding,))
    findings = _convert_to_half(model) if options.precision == "float16" else ()
    return PrecisionPlan(input_dtype=torch.float16, loss_dtype=torch.float32, findings=findings)


def _convert_to_half(model: nn.Module) -> Tuple[Finding, ...]:
    floats = [tensor for tensor in (*model.parameters(), *model.buffers()) if tensor.dtype.is_floating_point]
    converted = [tensor for tensor in floats if tensor.dtype != torch.float16]
    if not converted:
        return ()
    model.half()
    num_elements = sum(tensor.numel() for tensor in converted if not is_lazy(tensor))
    fact = f"{len(converted)} parameters and buffers with {num_elements} elements were converted in place"
    remedy = "use `precision='mixed'` to keep them in float32; `model.float()` converts them back, less precise"
    return (Finding("P003", message="the weights were converted to float16", notes=fact, help=remedy),)


@contextmanager
def cast_weights(model: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Let `model` see its floating-point parameters in `dtype` while the context lasts.

    The casts belong to the graph that a device records: what trains are the parameters themselves. PopTorch would not
    cast them by itself. A matrix product of half and single precision becomes one in single precision there, and so
    does all that follows; a convolution is refused. Layers that multiply by weights cast their inputs, too, so that
    numbers in single precision on their way (a buffer, a mask) end at the next of them. Embeddings look up their own
    parameters, and what they have found is cast: a copy of the table would be larger.

    >>> model = nn.Sequential(nn.Embedding(3, 2), nn.Linear(2, 1))
    >>> with cast_weights(model, torch.float64):
    ...     model(torch.tensor([1])).dtype, model[1].weight.dtype
    (torch.float64, torch.float64)
    >>> model[1].weight.dtype
    torch.float32
    """
    modules = [module for _prefix, module in walk_modules(model) if not isinstance(module, torch.jit.ScriptModule)]
    casts: Dict[int, torch.Tensor] = {}

    def cast_inputs(_module: nn.Module, args: Args, kwargs: Kwargs) -> Any:
        return cast_floats((args, kwargs), dtype)

    with ExitStack() as undone:
        for module in modules:
            own = _swap_weights(module, dtype, casts, undone)
            if isinstance(module, _LOOK_UPS):
                _look_up_uncast(module, own, dtype, undone)
            elif isinstance(module, _PRODUCTS):
                undone.callback(module.register_forward_pre_hook(cast_inputs, with_kwargs=True).remove)
        yield


_LOOK_UPS = (nn.Embedding, nn.EmbeddingBag)

_PRODUCTS = (nn.Bilinear, nn.Linear, nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase, CONVOLUTIONS)


def _swap_weights(
    module: nn.Module, dtype: torch.dtype, casts: Dict[int, torch.Tensor], undone: ExitStack
) -> Dict[str, torch.Tensor]:
    """Put casts in the place of the parameters of `module` and return these; `casts` are those of shared ones."""
    registry = read_registry(module, "_parameters")
    there = {name: tensor for name, tensor in registry.items() if tensor is not None and not is_lazy(tensor)}
    own = {name: tensor for name, tensor in there.items() if tensor.is_floating_point() and tensor.dtype != dtype}
    undone.callback(registry.update, own)
    for name, tensor in own.items():
        if id(tensor) not in casts:
            casts[id(tensor)] = tensor.to(dtype)
        registry[name] = casts[id(tensor)]
    if own and isinstance(module, nn.RNNBase):
        # recurrent layers keep a second list of their parameters, which has to be changed with the registry
        undone.callback(setattr, module, "_flat_weights", module._flat_weights)
        module._flat_weights = [registry[name] for name in module._flat_weights_names]
    return own


def _look_up_uncast(module: nn.Module, own: Mapping[str, torch.Tensor], dtype: torch.dtype, undone: ExitStack) -> None:
    """Give an embedding its `own` parameters back while it runs, and cast what it has found."""
    registry = read_registry(module, "_parameters")
    casts = {name: registry[name] for name in own}

    def before(_module: nn.Module, _inputs: object) -> None:
        registry.update(own)

    def after(_module: nn.Module, _inputs: object, output: Structure) -> Any:
        registry.update(casts)
        return cast_floats(output, dtype)

    undone.callback(module.register_forward_pre_hook(before).remove)
    undone.callback(module.register_forward_hook(after).remove)


def cast_floats(value: object, dtype: Optional[torch.dtype]) -> Any:
    """Cast the floating-point tensors inside tuples, lists, dictionaries and objects of dataclasses; None casts none.

    Everything else passes through; containers are copied, never changed.

    >>> cast_floats((torch.ones(1), {"label": torch.tensor(1)}), torch.float16)
    (tensor([1.], dtype=torch.float16), {'label': tensor(1)})
    """
    if dtype is None:
        return value
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() and value.dtype != dtype else value
    if isinstance(value, MutableMapping):
        # a copy keeps what else a subclass carries: a default factory, the fields of a model's output
        changed = copy.copy(value)
        for key, item in value.items():
            changed[key] = cast_floats(item, dtype)
        return changed
    if is_record(value):
        return replace_fields(value, {name: cast_floats(item, dtype) for name, item in read_fields(value).items()})
    if isinstance(value, (tuple, list)):
        items = [cast_floats(item, dtype) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value
