"""The search where there is no captured step to replay: the model's plain forward and backward pass on the host.

That is what can be done about an IPU, which shows no value in between. Each function of torch that `forward` calls is
looked at; micro-batches run as one.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.overrides import TorchFunctionMode, resolve_name

from porting.diagnostics import caller_place

from .gradient_records import GradientRecords
from .not_finite import NotFinite, WatchedOperator
from .operator_records import NamedValue, OperatorRecords

__all__ = ["find_not_finite_on_host"]


def find_not_finite_on_host(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    names: Sequence[Tuple[str, nn.Module]],
    values: Mapping[str, torch.Tensor],
    find_loss: Optional[Callable[[Any], torch.Tensor]],
) -> Optional[NotFinite]:
    """Run `model` on copies of the weights and buffers `values` and return the first value that is not finite, or None.

    `names` are the modules by the names that the user knows. With `find_loss`, which takes the loss out of what the
    model returns, the backward pass follows. Nothing of the model changes, and no generator.
    """
    copies = {name: value.detach().clone() for name, value in values.items()}
    parameters = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    for name in parameters & copies.keys():
        copies[name].requires_grad_(find_loss is not None)
    watch = _FunctionWatch({id(module): name for name, module in names})
    for name, value in copies.items():
        watch.name(value, name, "parameter" if name in parameters else "buffer")
    for index, tensor in enumerate(_list_tensors((args, dict(kwargs)))):
        watch.name(tensor, f"input_{index}", "input")
    with torch.random.fork_rng(devices=[]), torch.set_grad_enabled(find_loss is not None), watch.modules_followed():
        with watch:
            returned = torch.func.functional_call(model, copies, tuple(args), dict(kwargs))
            loss = None if find_loss is None else find_loss(returned)
    if loss is None:
        outputs = enumerate(_list_tensors(returned))
        faults = (watch.operators.find(f"output {index}", tensor, allows_meant=True) for index, tensor in outputs)
        return next((fault for fault in faults if fault is not None), None)
    fault = watch.operators.find("loss", loss)
    if fault is None:
        loss.sum().backward()
        faults = (watch.derivatives.find(name, copies[name]) for name in sorted(parameters & copies.keys()))
        fault = next((found for found in faults if found is not None), None)
    return fault


class _FunctionWatch(TorchFunctionMode):
    """Looks at what goes into each function of torch and comes out of it."""

    def __init__(self, module_names: Mapping[int, str]) -> None:
        super().__init__()
        self.operators, self.derivatives = OperatorRecords(), GradientRecords()
        self._module_names = module_names
        self._modules: List[str] = []
        # tensors that are known by a name stay alive, so that no other has the same identity
        self._named: Dict[int, NamedValue] = {}

    def name(self, tensor: torch.Tensor, name: str, kind: str) -> None:
        """Let `tensor` be known by a name."""
        self._named[id(tensor)] = NamedValue(name, tensor, kind)

    def modules_followed(self) -> ExitStack:
        """Return a context in which the module that runs is known."""
        stack = ExitStack()
        for register, hook in (
            (module_hooks.register_module_forward_pre_hook, self._enter_module),
            (module_hooks.register_module_forward_hook, self._leave_module),
        ):
            stack.callback(register(hook).remove)
        return stack

    def _enter_module(self, module: nn.Module, _args: Any) -> None:
        self._modules.append(self._module_names.get(id(module), self._modules[-1] if self._modules else ""))

    def _leave_module(self, _module: nn.Module, _args: Any, _result: Any) -> None:
        self._modules.pop()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one function and look at it."""
        kwargs = kwargs or {}
        tensors = list(_list_tensors((args, kwargs)))
        inputs = [
            self._named.get(id(tensor), NamedValue(f"argument {index}", tensor)) for index, tensor in enumerate(tensors)
        ]
        ranges = self.operators.begin(inputs)
        result = func(*args, **kwargs)
        results = list(_list_tensors(result))
        if results:
            title = str(resolve_name(func) or getattr(func, "__name__", func))
            operator = WatchedOperator(title, self._modules[-1] if self._modules else "", caller_place())
            written = [(value.name, value.tensor) for value in inputs if value.kind == "buffer"]
            self.operators.end(operator, inputs, ranges, [*((title, tensor) for tensor in results), *written])
            self.derivatives.take_over(operator, ranges, results)
        return result


def _list_tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _list_tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _list_tensors(item)
