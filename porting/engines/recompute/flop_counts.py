"""Count the floating-point operations of a graph's operators, by torch's own formulas."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Callable, List, Mapping

import torch
from torch.fx.node import map_arg
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from ...capture.device_operators import device_operator
from ...capture.subgraphs import bodies_of, run_for_loop
from ...torch_insides.fake_tensors import FakeTensor
from ...torch_insides.operators import OpOverload

__all__ = ["count_flops", "count_node_flops"]

aten = torch.ops.aten


def count_flops() -> FlopCounterMode:
    """Return a context that counts the operations of what runs inside, `get_total_flops()` of them.

    >>> with count_flops() as counter:
    ...     torch.ones(2, 3) @ torch.ones(3, 4)
    tensor([[3., 3., 3., 3.],
            [3., 3., 3., 3.]])
    >>> counter.get_total_flops()
    48
    """
    return FlopCounterMode(display=False, custom_mapping=dict(_ATTENTION_ON_CPU))


def count_node_flops(node: torch.fx.Node) -> int:
    """Count the operations of one node, bodies included; operators without a formula make one for each element.

    >>> from porting.capture import capture_step
    >>> graph = capture_step(torch.nn.Linear(4, 2), [torch.ones(8, 4)], mode="inference")
    >>> [count_node_flops(node) for node in graph.graph.nodes if node.op == "call_function"]
    [128]
    """
    target: Any = node.target
    if not isinstance(target, OpOverload):
        times = int(node.args[0]) if target is run_for_loop else 1  # type: ignore[arg-type]
        return times * sum(count_node_flops(inner) for body in bodies_of(node) for inner in body.graph.nodes)
    value = node.meta.get("val")
    elements = value.numel() if isinstance(value, FakeTensor) else 0
    # Running these for the count would print, call the host, or draw numbers. Attention is the only one with a formula.
    has_effect = device_operator(target) is not None or torch.Tag.nondeterministic_seeded in target.tags and elements
    counted = 0 if has_effect and "scaled_dot_product" not in str(target) else _count_by_formula(node)
    return counted or elements


def _count_by_formula(node: torch.fx.Node) -> int:
    values: List[Any] = [used.meta.get("val") for used in node.all_input_nodes]
    if not values or not all(isinstance(value, FakeTensor) for value in values):
        return 0  # what makes a tensor of nothing fills it
    args, kwargs = map_arg((node.args, node.kwargs), lambda used: used.meta["val"])
    target: Any = node.target
    try:
        # composite operators make tensors of their own, which must have no values either
        with values[0].fake_mode, torch.no_grad(), count_flops() as counter:
            target(*args, **kwargs)
    except (RuntimeError, NotImplementedError):
        return 0  # fake tensors have no values: an operator that reads one is cheap
    return int(counter.get_total_flops())


_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
# torch counts attention on other devices only, and older ones have no such operators
_ATTENTION_ON_CPU: Mapping[Any, Callable[..., int]] = MappingProxyType(
    {
        getattr(aten, name): formula
        for name, formula in (
            (_ATTENTION, lambda *shapes, **_: int(sdpa_flop_count(*shapes[:3]))),
            (f"{_ATTENTION}_backward", lambda *shapes, **_: int(sdpa_backward_flop_count(*shapes[:4]))),
        )
        if hasattr(aten, name)
    }
)
