"""Refuse to move, cast, copy or wrap a model that is on its device.

Ported models and host loops are each a `FixedModule`.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator, Mapping, NoReturn, Tuple, TypeVar, Union

import torch
from torch import nn

from ..diagnostics import DeviceError, OptionError
from ..options import PortOptions
from ..support.lost_interrupts import pass_on_interrupts
from .port import Port

__all__ = ["FixedModule", "make_wrapper_error", "refuse_assignment"]

_Self = TypeVar("_Self", bound="FixedModule")

_DEVICES = ("cpu", "ipu")
_REPLICAS = (
    "spread a batch over devices by `PortOptions(replicas=N)`; several processes start with `poprun` or `torchrun`"
)
_ENGINE = "leave `torch.compile` out: the whole step is compiled already; `PortOptions(engine=...)` chooses how"

# wrappers that ask what they get for an attribute, before they do anything with it
_ASKED_BY = {
    "_ddp_params_and_buffers_to_ignore": ("DistributedDataParallel", _REPLICAS),
    "_torchdynamo_orig_callable": ("torch.compile", _ENGINE),
}


# To whoever walks over modules, a module is its dictionaries. These are shared with the user's model, so that both have
# the same tensors, parts, and hooks of saving and loading at all times.
_SHARED = (
    "_parameters",
    "_buffers",
    "_non_persistent_buffers_set",
    "_modules",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


class FixedModule(nn.Module):
    """A module with the parts of a port's model and without a place of its own to move to.

    It is the model to all that looks at parameters and modules, whether as a whole or as a part of another module, and
    keeps its own forward hooks. What moves or casts it is refused by DeviceError D003, unless it changes nothing.
    """

    def __init__(self, port: Port) -> None:
        """Share the dictionaries of the port's model."""
        super().__init__()
        pass_on_interrupts()
        state = vars(port.model)
        self.__dict__.update({name: state[name] for name in _SHARED if name in state})
        self._port = port

    @property
    def model(self) -> nn.Module:
        """The user's module, with the weights of the device."""
        return self._port.model

    @property
    def options(self) -> PortOptions:
        """The options that the model was ported with."""
        return self._port.options

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._port.backend.device_description}):\n{self._port.model!r}"

    # -- moves and casts -----------------------------------------------------------------------------------------------

    def to(self: _Self, *args: Any, **kwargs: Any) -> _Self:
        """Return this module for "cpu", "ipu" and the type it has; raise DeviceError D003 for all others.

        The weights are on the host whenever they are looked at.
        """
        keywords = {name: value for name, value in kwargs.items() if name not in ("non_blocking", "copy")}
        for value in (*args, *keywords.values()):
            if isinstance(value, torch.Tensor):
                _check_device(value.device, value)
                self._keep_type(value.dtype, "to(tensor)")
            elif isinstance(value, torch.dtype):
                self._keep_type(value, f"to({value})")
            elif isinstance(value, torch.memory_format):
                raise _cannot_move(f"`to(memory_format={value})`")
            elif value is not None and not isinstance(value, bool):
                _check_device(value, value)
        return self

    def cpu(self: _Self) -> _Self:
        """Return this module: weights come to the host whenever they are looked at."""
        return self

    def ipu(self: _Self, *_args: object, **_kwargs: object) -> _Self:
        """Return this module: it is on its device already."""
        return self

    def half(self: _Self) -> _Self:
        """Return this module if its weights are float16 already; raise DeviceError D003 otherwise."""
        return self._keep_type(torch.float16, "half()")

    def float(self: _Self) -> _Self:
        """Return this module if its weights are float32 already; raise DeviceError D003 otherwise."""
        return self._keep_type(torch.float32, "float()")

    def double(self: _Self) -> _Self:
        """Refuse (DeviceError D003): the device has no float64."""
        return self._keep_type(torch.float64, "double()")

    def bfloat16(self: _Self) -> _Self:
        """Refuse (DeviceError D003): the device has no bfloat16."""
        return self._keep_type(torch.bfloat16, "bfloat16()")

    def type(self: _Self, dst_type: Union[torch.dtype, str]) -> _Self:
        """Return this module if its weights are of `dst_type` already; raise DeviceError D003 otherwise."""
        return self._keep_type(dst_type, f"type({dst_type})")

    def _keep_type(self: _Self, dtype: Union[torch.dtype, str], call: str) -> _Self:
        floats = [tensor for tensor in self.parameters() if tensor.is_floating_point()]
        if any(dtype not in (tensor.dtype, tensor.type()) for tensor in floats):
            raise _cannot_move(f"`{call}`")
        return self

    def _apply(self: _Self, fn: Callable[[torch.Tensor], torch.Tensor], *_recurse: object, **_by_name: object) -> _Self:
        """Accept what a module around this one does to all its tensors if it leaves these as they are."""
        kinds = {(tensor.dtype, tensor.dim()) for tensor in [*self.parameters(), *self.buffers()]}
        for dtype, num_dims in kinds:
            # tried on a tensor without elements: of a large model's the copies would take long
            tensor = torch.empty((0,) * num_dims, dtype=dtype)
            if fn(tensor) is not tensor or tensor.is_shared():
                raise _cannot_move("what the module around it is asked for")
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_port" not in self.__dict__:
            raise AttributeError(name)
        model = self._port.model
        value = getattr(model, name)
        if getattr(value, "__self__", None) is not model:
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            """Call the model's method, but never hand out the bare model in the place of the ported one."""
            result = value(*args, **kwargs)
            return self if result is model else result

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the user's model there, where `forward` reads it, and one of this module here."""
        own = self.__dict__
        port = None if name[:1] == "_" or name in own else own.get("_port")
        if port is not None and name in vars(port.model) and not hasattr(type(self), name):
            setattr(port.model, name, value)
        else:
            super().__setattr__(name, value)

    def __reduce__(self) -> NoReturn:
        raise DeviceError.at_caller(
            "D003",
            message="a ported model cannot be copied or pickled",
            notes="it holds an executable and a device",
            help=("save its weights: `torch.save(ported.state_dict(), path)`", "or copy the module: `ported.model`"),
        )

    # -- parts ---------------------------------------------------------------------------------------------------------

    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[Tuple[str, nn.Module]]:
        """Yield the modules of the model, itself the first."""
        return self._port.model.named_modules(*args, **kwargs)

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, local_metadata: Mapping[str, Any], *args: Any
    ) -> None:
        # called by a module around this one, and a model may have its own way to load
        refuse_assignment(bool(local_metadata.get("assign_to_params_buffers")))
        self._port.model._load_from_state_dict(state_dict, prefix, local_metadata, *args)


def _refuse_move(name: str) -> Callable[..., NoReturn]:
    def refuse(_self: object, *_args: object, **_kwargs: object) -> NoReturn:
        raise _cannot_move(f"`{name}()`")

    refuse.__name__, refuse.__doc__ = name, "Refuse (DeviceError D003): the model is on its device."
    return refuse


def _refuse_wrapper(name: str) -> property:
    def refuse(_self: object) -> NoReturn:
        raise make_wrapper_error(*_ASKED_BY[name])

    return property(refuse)


def _delegate_method(name: str) -> Callable[..., Any]:
    def ask_model(self: FixedModule, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._port.model, name)(*args, **kwargs)

    ask_model.__name__, ask_model.__doc__ = name, f"Do what `{name}` of the model does."
    return ask_model


for _name in ("cuda", "mtia", "share_memory", "to_empty", "xpu"):
    setattr(FixedModule, _name, _refuse_move(_name))
# of the class, as some versions of torch do not ask `__getattr__`
for _name in _ASKED_BY:
    setattr(FixedModule, _name, _refuse_wrapper(_name))
# Backward hooks are the model's, where a compilation refuses them: no gradient passes through a port on the host.
for _name in ("register_backward_hook", "register_full_backward_hook", "register_full_backward_pre_hook"):
    setattr(FixedModule, _name, _delegate_method(_name))


def refuse_assignment(assign: bool) -> None:
    """Raise OptionError P002 for weights that are to take the place of the model's tensors."""
    if assign:
        raise OptionError.at_caller(
            "P002",
            message="`load_state_dict(..., assign=True)` would exchange the tensors that the device trains",
            help="leave `assign` out: the values are copied into the tensors, and sent to the device",
        )


def _check_device(device: object, value: object) -> None:
    name = device if isinstance(device, str) else getattr(device, "type", "cuda")
    if str(name).split(":")[0] not in _DEVICES:
        raise _cannot_move("`to(tensor)`" if isinstance(value, torch.Tensor) else f"`to({value!r})`")


def _cannot_move(call: str) -> DeviceError:
    return DeviceError.at_caller(
        "D003",
        message=f"{call} would take the model off its device or change its type",
        notes="on a plain executor this call returns the bare module, and training goes on on the host",
        help=(
            "choose the device with `to_ipu(..., device=...)` and the precision with `PortOptions(precision=...)`",
            "for a plain PyTorch model, `ported.destroy()` first and go on with your own module",
        ),
    )


# -- wrappers for plain modules ----------------------------------------------------------------------------------------


def make_wrapper_error(wrapper: str, remedy: str = _REPLICAS) -> DeviceError:
    """Return DeviceError D003 for a call by `wrapper`."""
    return DeviceError.at_caller(
        "D003",
        message=f"a ported model is wrapped in `{wrapper}`, which is for modules on the host",
        notes="a call of a ported model is a whole training step, optimizer included",
        help=remedy,
    )
