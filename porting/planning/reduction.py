"""This module makes a small model of a large one, with the same kinds of layers and the same operators, to prove it by.

A chain of equal layers in a `Sequential` or a `ModuleList` keeps its first, its middle and its last one, under their
names and with their values, in a copy. Where the model has a configuration it is made anew by it, with its sizes
divided. Both models are looked at without computing: one that lacks an operator proves nothing and is refused.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
from dataclasses import dataclass
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, Mapping, Optional, Tuple

import torch
from torch import nn

from .. import simulator
from ..adapters.loss_terms import Losses
from ..api import to_ipu
from ..diagnostics import PortingError, join_names, take_first_line
from ..model_copies import copy_model
from ..module_attributes import materialise_lazy_modules
from ..options import PortOptions
from ..structure import Structure, make_call_arguments
from .step_walk import look_at_step

__all__ = ["Reduction", "reduce_model"]

_Chain = Tuple[Tuple[str, ...], Tuple[str, ...]]

_DEVIATION = 0.02
# what configurations call the widths of layers, those of one head, and the number of heads
_WIDTHS = frozenset(
    "hidden_size intermediate_size d_model d_ff d_inner ffn_dim encoder_ffn_dim decoder_ffn_dim n_embd n_inner "
    "embedding_size word_embed_proj_dim width inner_width hidden_dim dim embed_dim mlp_dim".split()
)
_HEAD_WIDTHS = frozenset(["head_dim", "d_kv", "attention_head_size"])
_HEADS = frozenset(
    "num_attention_heads num_key_value_heads encoder_attention_heads decoder_attention_heads num_heads n_head "
    "n_heads nhead".split()
)


@dataclass(frozen=True)
class Reduction:
    """A small model of a large one, and what is not in it; as a string it says so.

    `kept` and `left_out` name the layers of each chain, `sizes` gives those of the configuration, before and after.
    `operators` are those of both models.
    """

    model: nn.Module
    kept: Mapping[str, Tuple[str, ...]]
    left_out: Mapping[str, Tuple[str, ...]]
    sizes: Mapping[str, Tuple[int, int]]
    num_weights: Tuple[int, int]
    operators: FrozenSet[str]

    @property
    def not_covered(self) -> Tuple[str, ...]:
        """What a proof of the small model says nothing of."""
        layers = sum(map(len, self.left_out.values()))
        return (
            *([f"depth: {layers} layers are left out, whose rounding adds up"] * bool(layers)),
            *(["settings of operators that only layers left out have"] * bool(layers)),
            *(["sums over the whole widths, whose rounding is larger"] * bool(self.sizes)),
            "memory and speed, of which the plan of the whole model tells",
        )

    def to_dict(self) -> Dict[str, Any]:
        """Return what is in it as plain values, fit for JSON."""
        return {
            "kept": {name: list(layers) for name, layers in self.kept.items()},
            "left_out": {name: list(layers) for name, layers in self.left_out.items()},
            "sizes": {name: list(size) for name, size in self.sizes.items()},
            "num_weights": list(self.num_weights),
            "operators": sorted(self.operators),
            "not_covered": list(self.not_covered),
        }

    def __str__(self) -> str:
        before, after = self.num_weights
        lines = [f"{after:,} weights of {before:,}, the same {len(self.operators)} operators"]
        for name, kept in self.kept.items():
            whole = len(kept) + len(self.left_out[name])
            lines.append(f"  `{name or 'the model'}`: {', '.join(kept)} of {whole} layers")
        lines += [f"  `{name}`: {size} of {whole}" for name, (whole, size) in self.sizes.items()]
        if not self.sizes:
            lines.append("  all widths stay")
        return "\n".join([*lines, "not covered:", *(f"  {what}" for what in self.not_covered)])


def reduce_model(
    model: nn.Module,
    example: Structure,
    loss: Optional[Losses] = None,
    *,
    divisor: int = 1,
    options: Optional[PortOptions] = None,
    seed: int = 0,
) -> Reduction:
    """Make a small model with the operators of `model`, whose training step with `loss` takes the batch `example`.

    A `divisor` larger than 1 divides the widths and heads of the model's `config`, if it has one of its own; without
    one all widths stay. `model` stays as it is. It may be on torch's "meta" device: values are drawn then, and buffers
    without a rule for it are ones. New values come from `seed`.

    Raises PortingError M004 where the small model cannot run, or has not the operators and kinds of layers.

    >>> model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(12)))
    >>> reduced = reduce_model(model, (torch.ones(2, 4), torch.ones(2, 4)), nn.MSELoss())
    >>> [name for name, _layer in reduced.model.named_children()]
    ['0', '6', '11']
    """
    options = (options or PortOptions()).replace(memory="ignore", stages=None, recompute=(), serialize=None)
    wanted = _collect_operators(model, loss, example, options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            made, sizes = _divide_sizes(model, divisor)
            chains = dict(_iter_chains(made))
            small, operators = _cut_until_it_runs(
                made, chains, lambda cut: _collect_operators(cut, loss, example, options)
            )
        # whatever the model raises for other sizes and fewer layers
        except Exception as error:
            raise _make_refusal(f"the small model cannot run: {take_first_line(error)}", divisor) from error
    differing = sorted((wanted ^ operators) | (_collect_kinds(model) ^ _collect_kinds(small)))
    if differing:
        raise _make_refusal(f"only one of the two has {join_names(differing)}", divisor)
    return Reduction(
        model=small,
        kept={name: kept for name, (kept, _left_out) in chains.items()},
        left_out={name: left_out for name, (_kept, left_out) in chains.items()},
        sizes=sizes,
        num_weights=(_count_weights(model), _count_weights(small)),
        operators=operators,
    )


def _make_refusal(why: str, divisor: int) -> PortingError:
    return PortingError.at_caller(
        "M004",
        notes=why,
        help=(
            *(["leave the sizes as they are: `divisor=1`"] * (divisor > 1)),
            "make a small model by its own settings, and prove that one: `porting.verify(small, loss, batch)`",
        ),
    )


def _collect_operators(
    model: nn.Module, loss: Optional[Losses], example: Structure, options: PortOptions
) -> FrozenSet[str]:
    """Return the names of the operators of a step, without computing it."""
    port = to_ipu(model, loss, options=options, device="sim").port
    forward = port.wrapped.for_backend(simulator)
    args, kwargs = make_call_arguments(example)
    materialise_lazy_modules(forward, args, kwargs)
    return look_at_step(port.model, forward, args, kwargs, options).operators


def _collect_kinds(model: nn.Module) -> FrozenSet[str]:
    return frozenset(type(module).__name__ for module in model.modules())


def _count_weights(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# -- depth -------------------------------------------------------------------------------------------------------------


def _iter_chains(model: nn.Module) -> Iterator[Tuple[str, _Chain]]:
    """List the containers with a chain of equal layers, and the names of the layers that stay in it and that go."""
    outer: List[nn.Module] = []
    for path, module in model.named_modules():
        if isinstance(module, (nn.Sequential, nn.ModuleList)) and not any(module in found.modules() for found in outer):
            groups = itertools.groupby(module.named_children(), key=lambda named: _describe_layer(named[1]))
            runs = [[name for name, _layer in run] for _description, run in groups]
            kept = {name for run in runs for name in (run[0], run[len(run) // 2], run[-1])}
            names = [name for run in runs for name in run]
            if len(kept) < len(names):
                outer.append(module)
                stays, goes = ([name for name in names if (name in kept) is wanted] for wanted in (True, False))
                yield path, (tuple(stays), tuple(goes))


def _describe_layer(layer: nn.Module) -> Tuple[Any, ...]:
    """Return what layers have in common that can stand in for each other."""
    state = itertools.chain(layer.named_parameters(), layer.named_buffers())
    return repr(layer), [(name, tensor.shape, tensor.dtype, tensor.requires_grad) for name, tensor in state]


def _cut_until_it_runs(
    model: nn.Module, chains: Mapping[str, _Chain], look: Callable[[nn.Module], FrozenSet[str]]
) -> Tuple[nn.Module, FrozenSet[str]]:
    """Return a copy without the layers that go, under their names, or numbered anew if its `forward` counts them."""
    without = [model.get_submodule(f"{path}.{name}".lstrip(".")) for path, (_, goes) in chains.items() for name in goes]
    small = copy_model(model, without=without)
    for path, (_stays, goes) in chains.items():
        for name in goes:
            delattr(small.get_submodule(path), name)
    _draw_missing_values(small)
    try:
        return small, look(small)
    except (KeyError, AttributeError, IndexError, PortingError):
        for path, (stays, _goes) in chains.items():
            container = small.get_submodule(path)
            layers = [getattr(container, name) for name in stays]
            for name in stays:
                delattr(container, name)
            for number, layer in enumerate(layers):
                container.add_module(str(number), layer)
        return small, look(small)


def _draw_missing_values(model: nn.Module) -> None:
    """Give values to what is on torch's "meta" device, one tensor where several modules share one."""
    drawn: Dict[int, torch.Tensor] = {}
    for module in model.modules():
        tensors = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        missing = [(name, tensor) for name, tensor in tensors if tensor.is_meta]
        for name, tensor in missing:
            if id(tensor) not in drawn:
                new = torch.ones_like(tensor, device="cpu")
                is_parameter = isinstance(tensor, nn.Parameter)
                drawn[id(tensor)] = (
                    nn.Parameter(new.normal_(0, _DEVIATION), tensor.requires_grad) if is_parameter else new
                )
            setattr(module, name, drawn[id(tensor)])
        reset = getattr(module, "reset_parameters", getattr(module, "_reset_parameters", None))
        if missing and callable(reset):
            reset()


# -- width -------------------------------------------------------------------------------------------------------------


def _divide_sizes(model: nn.Module, divisor: int) -> Tuple[nn.Module, Mapping[str, Tuple[int, int]]]:
    """Make the model anew with its configuration's sizes divided; the model itself where there is none to divide."""
    config = getattr(model, "config", None)
    settings = {name: value for name, value in getattr(config, "__dict__", {}).items() if type(value) is int}
    widths = {name: value for name, value in settings.items() if name in _WIDTHS}
    if divisor == 1 or not widths:
        return model, {}
    heads = {name: value for name, value in settings.items() if name in _HEADS}
    # fewer heads as wide as before, if they can be divided; else as many narrow ones
    divides_heads = all(value % divisor == 0 for value in heads.values())
    of_heads = heads if divides_heads else {name: settings[name] for name in _HEAD_WIDTHS & set(settings)}
    wrong = [f"`{name}` is {value}" for name, value in {**widths, **of_heads}.items() if value % divisor]
    if wrong:
        raise ValueError(f"{wrong[0]}, which {divisor} does not divide")
    sizes = {name: (value, value // divisor) for name, value in {**widths, **of_heads}.items()}
    changes = {name: after for name, (_before, after) in sizes.items()}
    made = type(model)(_change_settings(config, changes))
    of_type = next((parameter.dtype for parameter in model.parameters()), None)
    return made.to(dtype=of_type).train(model.training), sizes


def _change_settings(config: Any, changes: Mapping[str, int]) -> Any:
    if dataclasses.is_dataclass(config) and {field.name for field in dataclasses.fields(config)} >= set(vars(config)):
        return dataclasses.replace(config, **changes)  # type: ignore[type-var]
    # transformers' are dataclasses with attributes that are no fields, which `replace` would lose
    changed = copy.deepcopy(config)
    vars(changed).update(changes)
    return changed
