"""Find the shapes and types of results by running operators on tensors without values.

The recorder makes its device tensors of them.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import Any, Callable, Iterator

import torch

from ...support.function_modes import Args, Kwargs
from ...torch_insides.operators import OpOverload
from ...torch_insides.trees import tree_map
from ..device_operators import device_operator
from ..device_tensor import DeviceTensor
from ..operator_schema import READS_VALUES, map_leaves, operator_name
from ..shape_mode import UNKNOWN, ShapeMode

__all__ = ["explain_failure", "result_shape", "run_on"]


def result_shape(fake_mode: ShapeMode, func: OpOverload, args: Args, kwargs: Kwargs) -> Any:
    """Run `func`, or what stands for it on the device, on the fake tensors behind its arguments."""
    special = device_operator(func)
    # on the device the operator may do another thing than its kernel for the CPU
    shape_rule = func if special is None or special.shape is None else special.shape
    with torch.no_grad():
        # their kernels check values, such as lengths; ones pass the checks
        if special is None and operator_name(func) in READS_VALUES:
            result = run_on(torch.ones, func, args, kwargs)
            # sizes stay numbers: a static graph has no symbols
            return tree_map(lambda leaf: fake_mode.from_tensor(leaf, static_shapes=True), result)
        fake_args, fake_kwargs = map_leaves(
            lambda leaf: leaf.fake if isinstance(leaf, DeviceTensor) else leaf, (args, kwargs)
        )
        result = fake_mode.result_of(shape_rule, fake_args, fake_kwargs)
        if result is UNKNOWN and special is None:
            result = fake_mode.try_result_of(func, fake_args, fake_kwargs)
        if result is not UNKNOWN:
            return result
        # torch's own rules know every operator, and take about a millisecond
        with fake_mode, _quiet_fake_tensors():
            return shape_rule(*fake_args, **fake_kwargs)


def explain_failure(func: Callable[..., Any], args: Args, kwargs: Kwargs, unknown: Exception) -> Exception:
    """Return what torch itself says about these shapes, or `unknown` where it has nothing against them.

    Its CPU kernels word errors otherwise than shape rules.
    """
    try:
        run_on(torch.zeros, func, args, kwargs)
    except Exception as eager:
        return eager
    return unknown


def run_on(make: Callable[..., torch.Tensor], func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Run `func` for real on tensors that `make(shape, dtype=...)` returns in the place of the device's."""
    made = tree_map(
        lambda leaf: make(leaf.shape, dtype=leaf.dtype) if isinstance(leaf, DeviceTensor) else leaf, (args, kwargs)
    )
    with _quiet_fake_tensors():
        return func(*made[0], **made[1])


@contextmanager
def _quiet_fake_tensors() -> Iterator[None]:
    """Keep torch from logging a traceback for each operator that fails on fake tensors: the error itself is raised."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = disabled
