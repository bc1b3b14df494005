"""Compare the backward pass of a function with the derivative of its forward pass.

`porting.check_backward` is here.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import torch
from torch import nn
from torch.autograd.gradcheck import GradcheckError

from porting.diagnostics import PortingError
from porting.gradient_check.comparison import Gradient, GradientComparison, Tolerances
from porting.gradient_check.slopes import (
    Gradients,
    Slopes,
    complete_gradients,
    list_outputs,
    refuse_kink,
    weigh_outputs,
)
from porting.model_copies import keep_buffers

__all__ = ["GradientCheck", "check_backward", "numerical_grad"]

_Tensors = Union[torch.Tensor, Sequence[torch.Tensor]]


@dataclass(frozen=True)
class GradientCheck:
    """What was compared: elements one by one, and directions of tensors that have too many.

    `worst` is the largest difference as a part of what was allowed, at most 1.
    """

    num_elements: int
    num_directions: int
    worst: float


def numerical_grad(
    f: Callable[[], Any],
    inputs: _Tensors,
    grad_outputs: Gradients,
    eps: float = 1e-3,
    *,
    detect_nondifferentiable: bool = False,
) -> Tuple[torch.Tensor, ...]:
    """Compute gradients from differences, as Chainer's `numerical_grad` does.

    `f` takes no arguments and computes from `inputs`, whose elements are moved by `eps` to both sides, in place, and
    put back. `grad_outputs` are the gradients by what it returns, a tensor or several; None stands for none. The
    result has a gradient for each of `inputs`, in its shape and type; what is added up is added up in float64. With
    `detect_nondifferentiable` a kink within `eps` of an element is PortingError V006. Raises PortingError V007 for
    gradients of another shape or number than what `f` returns, and where `eps` is lost in the rounding of an input.

    >>> x = torch.tensor([1.0, 2.0], dtype=torch.float64)
    >>> numerical_grad(lambda: x**3, [x], torch.ones(2))[0]
    tensor([ 3.0000, 12.0000], dtype=torch.float64)
    """
    tensors = _list_tensors(inputs)
    _refuse_arguments(tensors, [True] * len(tensors))
    gradients = complete_gradients(grad_outputs, list_outputs(f()))
    slopes = Slopes(lambda: weigh_outputs(list_outputs(f()), gradients), eps)
    found = []
    for number, tensor in enumerate(tensors):
        gradient = torch.zeros(tensor.shape, dtype=torch.float64)
        for index in range(tensor.numel()):
            if detect_nondifferentiable:
                refuse_kink(slopes, tensor, index, f"input {number}")
            gradient.view(-1)[index] = slopes.measure(tensor, index)
        found.append(gradient.to(tensor.dtype))
    return tuple(found)


def check_backward(
    func: Callable[..., Any],
    x_data: _Tensors,
    y_grad: Gradients = None,
    params: Sequence[torch.Tensor] = (),
    *,
    eps: float = 1e-3,
    atol: Optional[float] = None,
    rtol: Optional[float] = None,
    no_grads: Optional[Sequence[bool]] = None,
    dtype: torch.dtype = torch.float64,
    detect_nondifferentiable: bool = False,
    double_backward: bool = False,
) -> GradientCheck:
    """Compare the gradients that autograd gives for `func` with differences, as Chainer's `check_backward` does.

    `func` takes the tensors of `x_data` and returns tensors; it may be a module, whose parameters are checked as well.
    `params` are other tensors that it uses. `y_grad` are the gradients by what it returns, None for one of them or for
    all: then they are drawn, so that no element of a result is left out. Gradients are computed in the types of the
    tensors, half ones included; the differences in `dtype`, in which `x_data` and `params` are then. Inputs of integers
    and those that `no_grads` marks are not differentiated. Tensors of up to 256 elements are checked one by one, larger
    ones along random directions; where such a check fails, the element is searched for.

    A gradient may be off by `atol` + `rtol` times its size; without them, by what the rounding of its type explains.
    With `double_backward` the second derivatives are checked too, in float64, by `torch.autograd.gradgradcheck`. Every
    call of `func` draws the same random numbers, and the host's random stream is as before afterwards.

    Raises PortingError V005 that names the input, the element and both values; V006 where the function has a kink
    there, or with `detect_nondifferentiable` anywhere; V007 for what cannot be checked.

    >>> check_backward(torch.tanh, torch.randn(5)).num_elements
    5
    """
    inputs = _list_tensors(x_data)
    is_checked = [tensor.is_floating_point() for tensor in inputs]
    if no_grads is not None:
        is_checked = [checked and not excluded for checked, excluded in zip(is_checked, no_grads)]
    named = _name_weights(func, params)
    _refuse_arguments([*inputs, *named.values()], [*is_checked, *(True for _name in named)], no_grads, len(inputs))
    with torch.random.fork_rng(devices=[]):
        state = torch.get_rng_state()
        gradients, y_grads = _compute_gradients(func, inputs, list(named.values()), is_checked, y_grad)
        with _cast_parts(func, inputs, params, dtype) as (own, wide):

            def evaluate() -> float:
                torch.set_rng_state(state)
                # copies: what `func` writes into its arguments is not to stay
                return weigh_outputs(list_outputs(own(*(tensor.clone() for tensor in wide))), y_grads)

            _refuse_type(evaluate, dtype)
            largest = max(
                (float(gradient.values.abs().max()) for gradient in gradients if len(gradient.values)), default=0.0
            )
            tolerances = Tolerances(largest, atol, rtol)
            comparison = GradientComparison(Slopes(evaluate, eps), tolerances, refuses_kinks=detect_nondifferentiable)
            moved = {f"input {number}": tensor for number, tensor in enumerate(wide) if is_checked[number]}
            moved.update(_name_weights(own, params))
            for (name, tensor), gradient in zip(moved.items(), gradients):
                comparison.compare(name, tensor, gradient)
        if double_backward:
            torch.set_rng_state(state)
            with _cast_parts(func, inputs, params, torch.float64) as (own, wide):
                _check_second_derivatives(own, wide, is_checked, state)
    return GradientCheck(comparison.num_elements, comparison.num_directions, comparison.worst)


# -- the two sides -----------------------------------------------------------------------------------------------------


def _compute_gradients(
    func: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    is_checked: Sequence[bool],
    y_grad: Gradients,
) -> Tuple[List[Gradient], List[Optional[torch.Tensor]]]:
    """Return autograd's gradients by the checked inputs and the weights, and those by the results."""
    leaves = [tensor.detach().clone().requires_grad_(checked) for tensor, checked in zip(inputs, is_checked)]
    moved = [*(leaf for leaf, checked in zip(leaves, is_checked) if checked), *weights]
    kept: ContextManager[Any] = keep_buffers(func) if isinstance(func, nn.Module) else nullcontext()
    with kept, torch.enable_grad(), _requiring_gradients(weights):
        # copies, so that `func` may write into its arguments
        outputs = list_outputs(func(*(leaf.clone() for leaf in leaves)))
        y_grads = complete_gradients(y_grad, outputs)
        pairs = [(out, grad) for out, grad in zip(outputs, y_grads) if grad is not None and out.requires_grad]
        found: Sequence[Optional[torch.Tensor]] = [None] * len(moved)
        if pairs:
            ends, seeds = [out for out, _grad in pairs], [grad.to(out.dtype) for out, grad in pairs]
            found = torch.autograd.grad(ends, moved, seeds, allow_unused=True)
    gradients = []
    for tensor, grad in zip(moved, found):
        values = torch.zeros(tensor.numel(), dtype=torch.float64) if grad is None else grad.double().reshape(-1)
        gradients.append(Gradient(values, tensor.dtype, grad is not None))
    return gradients, y_grads


@contextmanager
def _requiring_gradients(weights: Sequence[torch.Tensor]) -> Iterator[None]:
    frozen = [weight for weight in weights if not weight.requires_grad]
    for weight in frozen:
        weight.requires_grad_(True)
    try:
        yield
    finally:
        for weight in frozen:
            weight.requires_grad_(False)


@contextmanager
def _cast_parts(
    func: Callable[..., Any], inputs: Sequence[torch.Tensor], params: Sequence[torch.Tensor], dtype: torch.dtype
) -> Iterator[Tuple[Callable[..., Any], List[torch.Tensor]]]:
    """Give `func`, of a module a copy, and the inputs in `dtype`; so are `params` while the context lasts."""
    own = deepcopy(func).to(dtype) if isinstance(func, nn.Module) else func
    wide = [tensor.detach().to(dtype if tensor.is_floating_point() else tensor.dtype).clone() for tensor in inputs]
    before = [parameter.data for parameter in params]
    for parameter in params:
        parameter.data = parameter.data.to(dtype).clone()
    try:
        yield own, wide
    finally:
        for parameter, data in zip(params, before):
            parameter.data = data


def _name_weights(func: Callable[..., Any], params: Sequence[torch.Tensor]) -> Dict[str, torch.Tensor]:
    named = {f"parameter {number}": tensor for number, tensor in enumerate(params)}
    if isinstance(func, nn.Module):
        named.update({f"`{name}`": weight for name, weight in func.named_parameters() if weight.requires_grad})
    return named


def _check_second_derivatives(
    func: Callable[..., Any], wide: Sequence[torch.Tensor], is_checked: Sequence[bool], state: torch.Tensor
) -> None:
    """Let torch check the gradient of the gradient, and say in its words what is wrong."""
    leaves = tuple(tensor.requires_grad_(checked) for tensor, checked in zip(wide, is_checked))

    def run(*tensors: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        torch.set_rng_state(state)
        return tuple(list_outputs(func(*(tensor.clone() for tensor in tensors))))

    try:
        torch.autograd.gradgradcheck(run, leaves, fast_mode=True)
    except GradcheckError as error:
        raise PortingError.at_caller(
            "V005",
            message="the gradient of the gradient is not the second derivative",
            notes=" ".join(str(error).split()),
            help="compute `backward` by operators that autograd can differentiate, from saved tensors",
        ) from error


# -- what cannot be checked --------------------------------------------------------------------------------------------


def _list_tensors(tensors: _Tensors) -> List[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _refuse_arguments(
    tensors: Sequence[torch.Tensor],
    is_checked: Sequence[bool],
    no_grads: Optional[Sequence[bool]] = None,
    num_inputs: int = 0,
) -> None:
    complex_ones = [tensor.dtype for tensor in tensors if tensor.is_complex()]
    if complex_ones:
        fault, remedy = f"a tensor is {complex_ones[0]}", "check it with `torch.autograd.gradcheck`, which knows these"
    elif no_grads is not None and len(no_grads) != num_inputs:
        fault, remedy = f"`no_grads` has {len(no_grads)} values for {num_inputs} inputs", "pass one for each input"
    elif not any(is_checked):
        fault, remedy = "there is nothing to differentiate", "pass floating-point inputs, or `params`"
    else:
        return
    raise PortingError.at_caller("V007", message=fault, help=remedy)


def _refuse_type(evaluate: Callable[[], float], dtype: torch.dtype) -> None:
    """Raise PortingError V007 if the function cannot compute in `dtype`."""
    try:
        evaluate()
    except (RuntimeError, TypeError, NotImplementedError) as error:
        raise PortingError.at_caller(
            "V007",
            message=f"the function cannot compute in {str(dtype).replace('torch.', '')}",
            notes=" ".join(str(error).split()),
            help=(
                "name the other tensors that it uses: `check_backward(func, x, params=[weight, bias])`",
                "or compute the differences in another type: `dtype=torch.float32`",
            ),
        ) from error
