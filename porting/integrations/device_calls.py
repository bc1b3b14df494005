"""Run the calls of a model on the device while the trainer keeps the model itself: `DeviceCalls`.

A trainer library checks the type of a model, reads the signature of its `forward`, saves, copies and unwraps it. So the
model is not replaced by a port: only the `forward` of its modules is, and the outermost module that is called runs on
the device, through a port with `loop="host"`. The modules that it calls are a part of its graph.
"""

from __future__ import annotations

import copy
import functools
import types
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from torch import nn

from ..api import PortedModel, RunReport, to_ipu
from ..api.host_loop import HostLoopModel
from ..diagnostics import DeviceError, OptionError
from ..options import PortOptions

__all__ = ["DeviceCalls", "calls_on_host", "is_ported"]

# Trainers evaluate in other shapes, and end an epoch with what is left; few of their programs have more.
_MAX_EXECUTABLES = 32

_ALONE = "pass the module inside, `model.module`: one process drives one device"
_WRAPPERS = {
    "OptimizedModule": ("torch.compile", "pass the module itself: it is compiled for the device"),
    "DataParallel": ("DataParallel", _ALONE),
    "DistributedDataParallel": ("DistributedDataParallel", _ALONE),
    "FullyShardedDataParallel": ("FullyShardedDataParallel", _ALONE),
}


class DeviceCalls:
    """Runs the modules of `model` on the device: of nested calls the outermost, as one graph.

    Modules without parameters stay on the host, and so do torchmetrics' metrics: they read values. `modules` names
    those that run on the device instead, as in `named_modules()`. Loss and optimizer are the trainer's.

    `options` are those of `to_ipu(model, loop="host")`, and so is `device`. A batch of another shape, such as the last
    one of an epoch, is compiled for once more: each module has up to 32 executables, or the options' `max_executables`.
    OptionError P002 for a name that the model does not have.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    >>> calls = DeviceCalls(model, device="sim")
    >>> with calls.active():
    ...     loss = model(torch.ones(3, 4)).sum()
    >>> loss.backward()
    >>> calls.list_device_modules(), model[0].weight.grad.shape
    (['Sequential'], torch.Size([2, 4]))
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        options: Optional[PortOptions] = None,
        device: str = "auto",
        modules: Sequence[str] = (),
    ) -> None:
        """Change nothing yet; `install` or `active` does."""
        _refuse_wrappers(model)
        self.model = model
        self._chosen = _choose_modules(model, modules)
        options = options or PortOptions()
        if options.max_executables == 1:
            options = options.replace(max_executables=_MAX_EXECUTABLES)
        self._port = functools.partial(to_ipu, loop="host", options=options, device=device)
        self._ports: Dict[str, HostLoopModel] = {}
        self._is_on = False

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let calls run on the device while the context lasts."""
        before = self._is_on
        self.install()
        try:
            yield
        finally:
            if not before:
                self.remove()

    def install(self) -> None:
        """Let calls run on the device from now on."""
        if not self._is_on:
            self._is_on = True
            for name, module in self._chosen.items():
                _RoutedForward.put_into(module, functools.partial(self._run_module, name))

    def remove(self) -> None:
        """Let calls run on the host again; executables stay for the next time."""
        self._is_on = False
        for module in self._chosen.values():
            _RoutedForward.take_out_of(module)

    def destroy(self) -> None:
        """Let calls run on the host again and drop all executables."""
        self.remove()
        for port in self._ports.values():
            port.destroy()
        self._ports.clear()

    def list_device_modules(self) -> List[str]:
        """List the names of the modules that have run on the device, the model's own by its class."""
        return [name or type(self.model).__name__ for name in self._ports]

    def reports(self) -> List[RunReport]:
        """Return the reports of the calls, one for each module."""
        return [port.report() for port in self._ports.values()]

    def _run_module(self, name: str, args: Sequence[Any], kwargs: Dict[str, Any]) -> Any:
        if name not in self._ports:
            self._ports[name] = self._port(_ForwardOf(self._chosen[name]))
        port = self._ports[name]
        # not by `train()`, which would reach the modules inside: some may be frozen in eval mode
        port.model.training = self._chosen[name].training
        return port(*args, **kwargs)


@contextmanager
def calls_on_host() -> Iterator[None]:
    """Let the calls of all models run on the host, in plain PyTorch, while the context lasts.

    There, gradients of gradients can be computed, such as those of a penalty on the slope of a critic.

    >>> import torch
    >>> model, x = nn.Linear(4, 1), torch.ones(3, 4, requires_grad=True)
    >>> with DeviceCalls(model, device="sim").active(), calls_on_host():
    ...     (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    >>> slope.norm().backward()
    >>> bool(model.weight.grad.any())
    True
    """
    before, _RoutedForward.is_inside = _RoutedForward.is_inside, True
    try:
        yield
    finally:
        _RoutedForward.is_inside = before


class _ForwardOf(nn.Module):
    """Calls `forward` of a module without its hooks, which run around the routed call on the host."""

    _porting_prefix = "module."
    _porting_renewal = (
        "`calls.destroy()`, then `calls.install()`; `calls` is the `DeviceCalls`, which a trainer has as `device_calls`"
    )

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.training = module.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the module's results."""
        return self.module.forward(*args, **kwargs)


class _RoutedForward:
    """Stands in for `forward` of one module; a copy of the module gets its own plain `forward`."""

    # one for all: modules inside a call on the device are a part of it, whichever trainer they belong to
    is_inside = False

    def __init__(self, module: nn.Module, run: Callable[[Sequence[Any], Dict[str, Any]], Any]) -> None:
        functools.update_wrapper(self, module.forward)  # first: it copies attributes
        self._own = vars(module).get("forward")
        self._module = module
        self._run = run

    @property
    def original(self) -> Callable[..., Any]:
        """The `forward` of the module; that of its class is looked up each time, as a capture may exchange it."""
        return self._own or types.MethodType(type(self._module).forward, self._module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _RoutedForward.is_inside:
            return self.original(*args, **kwargs)
        _RoutedForward.is_inside = True
        try:
            return self._run(args, kwargs)
        finally:
            _RoutedForward.is_inside = False

    def __deepcopy__(self, memo: Dict[int, Any]) -> Any:
        return copy.deepcopy(self.original, memo)

    def __reduce__(self) -> Tuple[Any, ...]:
        return _return_it, (self.original,)

    @classmethod
    def put_into(cls, module: nn.Module, run: Callable[[Sequence[Any], Dict[str, Any]], Any]) -> None:
        """Route the calls of `module` to `run`."""
        vars(module)["forward"] = cls(module, run)

    @classmethod
    def take_out_of(cls, module: nn.Module) -> None:
        """Restore the earlier `forward` of `module`."""
        routed = vars(module).get("forward")
        if isinstance(routed, cls):
            del vars(module)["forward"]
            if routed._own is not None:
                vars(module)["forward"] = routed._own


def _return_it(value: object) -> Any:
    return value


def is_ported(model: nn.Module) -> bool:
    """Tell whether `to_ipu` has made the model."""
    return isinstance(model, (PortedModel, HostLoopModel))


def _refuse_wrappers(model: nn.Module) -> None:
    """Raise DeviceError D003 for a model with a part that is not for a device, or on one already."""
    for name, module in [("", model), *model.named_modules()]:  # a port lists the modules of the model only
        wrapper, where = _WRAPPERS.get(type(module).__name__), f"`{name or type(model).__name__}`"
        if is_ported(module):
            wrapper = ("to_ipu", "pass the module itself, `ported.model`")
        elif getattr(module, "_compiled_call_impl", None) is not None:
            wrapper = _WRAPPERS["OptimizedModule"]
        if wrapper is not None:
            raise DeviceError.at_caller(
                "D003",
                message=f"{where} comes from `{wrapper[0]}`: it is no plain module, as the device runs them",
                help=wrapper[1],
            )


def _choose_modules(model: nn.Module, names: Sequence[str]) -> Dict[str, nn.Module]:
    """Return by name the modules whose calls run on the device."""
    known = dict(model.named_modules())
    if names:
        missing = [name for name in names if name not in known]
        if missing:
            raise OptionError.at_caller(
                "P002",
                message=f"`modules` names {missing[0]!r}, which `{type(model).__name__}` does not have",
                help="pass names of `model.named_modules()`, such as " + ", ".join(map(repr, list(known)[1:4])),
            )
        return {name: known[name] for name in names}
    metrics = tuple(f"{name}." for name, module in known.items() if _is_metric(module))
    return {
        name: module
        for name, module in known.items()
        if _has_forward(module) and not f"{name}.".startswith(metrics) and any(True for _ in module.parameters())
    }


def _is_metric(module: nn.Module) -> bool:
    """Tell whether it is one of torchmetrics', which may hold a network to score with."""
    return any(base.__module__.partition(".")[0] == "torchmetrics" for base in type(module).__mro__)


def _has_forward(module: nn.Module) -> bool:
    """Tell whether the module has a `forward` of its own: containers have none, nor have some LightningModules."""
    for base in type(module).__mro__:
        if "forward" in vars(base):
            return base is not nn.Module and base.__name__ != "LightningModule"
    return False
