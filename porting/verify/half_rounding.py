"""Round plain PyTorch to half precision after each operator, as a device does: so far goes a sound port.

A certificate proves what the adapters cast, so that nothing of theirs takes part. The rule is written in the docs of
`PortOptions(precision=...)`.
"""

from __future__ import annotations

import functools
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterator, List, Mapping, MutableMapping, Optional

import torch
from torch import nn

from porting.comparison.rounded_operators import RoundedOperators
from porting.comparison.tensors import round_at_random
from porting.host_tensors import read_registry, walk_modules
from porting.structure import map_tensors
from porting.torch_insides.modules import CONVOLUTIONS

from .plain_training import PlainTraining
from .reference_loss import make_loss_function

__all__ = ["HalfRule", "cast", "half_rounding", "weights_cast_to"]

_TYPES = {"float16": torch.float16, "mixed": torch.float16, "bfloat16": torch.bfloat16}
# modules that multiply what comes in by their weights: both have to be of one type
_MULTIPLYING = (nn.Bilinear, nn.Linear, nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase, CONVOLUTIONS)
# the rows that are looked up are cast, and the table is not
_TABLES = (nn.Embedding, nn.EmbeddingBag)


@dataclass(frozen=True)
class HalfRule:
    """How a device computes in half precision: `precision` is that of `PortOptions`, "float32" included.

    `loss_scaling` multiplies the gradients on their way back, and is divided out of those of the weights.
    `rounds_at_random` rounds weights and results up or down at random, in proportion to the distance.
    """

    precision: str
    loss_scaling: float = 1.0
    rounds_at_random: bool = False

    @classmethod
    def of(cls, ported: Any) -> HalfRule:
        """Read the rule of a port from its options and its optimizer.

        >>> import porting
        >>> options = porting.PortOptions(precision="mixed")
        >>> HalfRule.of(porting.to_ipu(nn.Linear(2, 1), nn.MSELoss(), options=options, device="sim"))
        HalfRule(precision='mixed', loss_scaling=1.0, rounds_at_random=False)
        """
        optimizer = ported.port_optimizer.device
        scaling = float(getattr(optimizer, "loss_scaling", None) or 1.0)
        return cls(ported.options.precision, scaling)

    @property
    def dtype(self) -> Optional[torch.dtype]:
        """The half type that is computed in; None for float32."""
        return _TYPES.get(self.precision)


@contextmanager
def half_rounding(training: PlainTraining, rule: HalfRule, *, seed: Optional[int] = None) -> Iterator[PlainTraining]:
    """Let a plain training in float32 compute as a device does in half precision, while the context lasts.

    What it gives is to be run inside of it, as any `PlainTraining` is. Each operator on half numbers is computed in
    float32 and its result rounded: to the nearest number without a `seed`, and with one up or down at random, in
    proportion to the distance, which is as far as another order of sums, fused operators and other kernels may lead.
    Several seeds give the noise band around the run without one. Casts, loss scaling and what is stored in half
    precision follow `rule`. The optimizer's state stays in float32, as it does on a device by default, and the
    gradients that it finds are those in float32, not scaled. Parameters and buffers of "float16" are rounded when the
    context begins and after each step; the weights stay as they were trained. Random numbers that the model draws are
    drawn as without it. With `rule` in float32 nothing changes.
    """
    dtype = rule.dtype
    if dtype is None:
        yield training
        return
    # weights that are stored in half are rounded to the nearest number, but by a device that rounds at random
    draws = torch.Generator().manual_seed(0 if seed is None else seed + 1)
    is_random = rule.rounds_at_random or seed is not None
    with ExitStack() as undone:
        if rule.precision == "float16":
            _store_in_half(training, undone, draws if rule.rounds_at_random else None)
        _exchange_forward(training.model, dtype, undone)
        if dtype is torch.float16:
            training = _scale_losses(training, rule.loss_scaling, undone)
        undone.enter_context(RoundedOperators(dtype, draws if is_random else None))
        yield training


def _exchange_forward(model: nn.Module, dtype: torch.dtype, undone: ExitStack) -> None:
    """Let `model` compute half numbers, and return single ones to the loss."""
    own, former = model.forward, model.__dict__.get("forward")

    @functools.wraps(own)
    def forward(*args: object, **kwargs: object) -> Any:
        if dtype is torch.bfloat16:
            # casts that autocast keeps would be those of an earlier step's weights
            with torch.autocast("cpu", dtype=dtype, cache_enabled=False):
                return cast(own(*args, **kwargs), torch.float32)
        with weights_cast_to(model, dtype):
            args, kwargs = cast((args, kwargs), dtype)
            return cast(own(*args, **kwargs), torch.float32)

    # on the instance: the user's class stays as it is, and so does what is called besides `forward`
    model.__dict__["forward"] = forward
    if former is None:
        undone.callback(model.__dict__.pop, "forward")
    else:
        undone.callback(model.__dict__.__setitem__, "forward", former)


class _ScaleGradient(torch.autograd.Function):
    """The identity of a loss, whose gradient is the loss scaling, whatever autograd started with."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, scaling: float, factors: List[torch.Tensor]) -> torch.Tensor:
        ctx.scaling, ctx.factors = scaling, factors
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        ctx.factors[:] = [gradients[0] / ctx.scaling]
        return torch.full_like(gradients[0], ctx.scaling), None, None


def _scale_losses(training: PlainTraining, scaling: float, undone: ExitStack) -> PlainTraining:
    """Send the loss scaling through the backward pass, and take it out of the gradients of the weights.

    A mean over micro-batches is taken there as well, as a device does: in half precision it could make them vanish.
    """
    loss_of = make_loss_function(training)
    factors: List[torch.Tensor] = []
    groups = training.optimizer.param_groups
    trained = [*training.model.parameters(), *(weight for group in groups for weight in group["params"])]
    for weight in {id(weight): weight for weight in trained if weight.requires_grad}.values():
        undone.callback(weight.register_hook(lambda gradient: gradient * factors[0] if factors else None).remove)

    def compute_loss(_model: nn.Module, *args: object, **kwargs: object) -> torch.Tensor:
        return _ScaleGradient.apply(loss_of(*args, **kwargs), scaling, factors)

    return replace(training, compute_loss=compute_loss)


def _store_in_half(training: PlainTraining, undone: ExitStack, draws: Optional[torch.Generator]) -> None:
    """Keep the values of weights, in float32, such as float16 can hold, and the buffers in float16 itself."""
    model = training.model

    def round_weights(*_step: object) -> None:
        with torch.no_grad():
            for weight in model.parameters():
                if weight.dtype is torch.float32:
                    half = weight.half() if draws is None else round_at_random(weight, torch.float16, draws)
                    weight.copy_(half)

    round_weights()
    undone.callback(training.optimizer.register_step_post_hook(round_weights).remove)
    for _prefix, module in walk_modules(model):
        registry = read_registry(module, "_buffers")
        for name, buffer in registry.items():
            if buffer is not None and buffer.dtype is torch.float32:
                registry[name] = buffer.half()
                undone.callback(_widen_buffer, registry, name, buffer)


def _widen_buffer(registry: MutableMapping[str, Any], name: str, own: torch.Tensor) -> None:
    """Bring a buffer's value back into the tensor that it was in."""
    registry[name] = own.copy_(registry[name])


# -- casts -------------------------------------------------------------------------------------------------------------


def cast(value: object, dtype: torch.dtype) -> Any:
    """Cast the floating-point tensors inside a value.

    >>> cast((torch.ones(1), torch.tensor(1)), torch.float16)
    (tensor([1.], dtype=torch.float16), tensor(1))
    """
    return map_tensors(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor, value)


@contextmanager
def weights_cast_to(model: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Let `model` compute with casts of its weights while the context lasts; gradients reach the weights themselves."""
    copies: Dict[int, torch.Tensor] = {}
    with ExitStack() as undone:
        for module in model.modules():
            whole = {name: value for name, value in module._parameters.items() if value is not None}
            whole = {name: value for name, value in whole.items() if value.is_floating_point()}
            for value in whole.values():
                copies.setdefault(id(value), value.to(dtype))
            half = {name: copies[id(value)] for name, value in whole.items()}
            _put_into(module, half)
            undone.callback(_put_into, module, whole)
            if isinstance(module, _TABLES):
                before = module.register_forward_pre_hook(lambda module, _args, whole=whole: _put_into(module, whole))
                undone.callback(before.remove)
                undone.callback(module.register_forward_hook(_LookUp(half, dtype)).remove)
            elif isinstance(module, _MULTIPLYING):
                hook = module.register_forward_pre_hook(
                    lambda _module, args, kwargs: (cast(args, dtype), cast(kwargs, dtype)), with_kwargs=True
                )
                undone.callback(hook.remove)
        yield


class _LookUp:
    """Casts what a table gave, and lets others see the table cast again."""

    def __init__(self, half: Dict[str, torch.Tensor], dtype: torch.dtype) -> None:
        self._half, self._dtype = half, dtype

    def __call__(self, module: nn.Module, _args: object, output: object) -> Any:
        _put_into(module, self._half)
        return cast(output, self._dtype)


def _put_into(module: nn.Module, values: Mapping[str, torch.Tensor]) -> None:
    module._parameters.update(values)  # type: ignore[arg-type]
    if values and isinstance(module, nn.RNNBase):
        module._flat_weights = [module._parameters[name] for name in module._flat_weights_names]
