"""Torch's functions on device tensors during capture: devices, factories, and reads that cannot work."""

from __future__ import annotations

import itertools
import re
from collections import OrderedDict
from functools import partial
from typing import Any, Callable, Dict, FrozenSet, Optional, Sequence, Union

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from ..diagnostics import Finding, caller_place, refuse
from ..structure import flatten_tensors
from ..support.function_modes import Args, Kwargs
from ..torch_insides.autograd import current_transform
from ..torch_insides.modes import DisableTorchFunction
from ..torch_insides.operators import split_to_arguments
from . import errors
from .device_tensor import IPU, DeviceTensor, is_device, is_host_tensor
from .dtypes import device_dtype
from .dynamic_indices import is_dynamic, read_dynamic, write_dynamic
from .plain_values import dtype_name
from .recording.recorder import Recorder

__all__ = ["DeviceFunctions", "constant_from_data", "note_forced_factory"]

# Factories that make a device tensor when no device is named: the list PopTorch patches while it traces.
_FACTORIES: FrozenSet[Any] = frozenset(
    getattr(torch, name)
    for name in "arange empty full full_like linspace logspace ones rand randint randn randperm range tensor zeros "
    "zeros_like".split()
)

_LIKE = frozenset([torch.ones_like, torch.rand_like, torch.randn_like, torch.zeros_like])
_MADE_BY_OPERATORS = _LIKE | frozenset([torch.arange, torch.full, torch.ones, torch.rand, torch.randn, torch.zeros])

_FROM_DATA = frozenset([torch.tensor, torch.as_tensor, torch.asarray])
# with the number of their arguments before the size of the result
_SPARSE_FACTORIES = {
    torch.sparse_coo_tensor: 2,
    torch.sparse_compressed_tensor: 3,
    torch.sparse_csr_tensor: 3,
    torch.sparse_csc_tensor: 3,
    torch.sparse_bsr_tensor: 3,
    torch.sparse_bsc_tensor: 3,
}

_HOST_READS: Dict[Any, str] = {
    torch.Tensor.item: "`.item()`",
    torch.Tensor.numpy: "`.numpy()`",
    torch.Tensor.tolist: "`.tolist()`",
    torch.Tensor.__bool__: "`bool(tensor)` (an `if`, `while`, `and` or `assert` on a tensor)",
    torch.Tensor.__int__: "`int(tensor)`",
    torch.Tensor.__float__: "`float(tensor)`",
    torch.Tensor.__complex__: "`complex(tensor)`",
    torch.Tensor.__index__: "using a tensor as a Python integer (an index, or `range(tensor)`)",
    torch.Tensor.__array__: "converting a tensor to a numpy array",
    torch.Tensor.__contains__: "`in` on a tensor",
    torch.Tensor.__reduce_ex__: "saving or pickling a tensor",
    torch.Tensor.data_ptr: "`.data_ptr()`",
    torch.Tensor.storage: "`.storage()`",
    torch.Tensor.untyped_storage: "`.untyped_storage()`",
}

# Functions that may bring a host tensor to the device.
_MOVES = frozenset([torch.Tensor.to, torch.Tensor.type_as, torch.Tensor.cuda])

_SET_DATA = torch.Tensor.data.__set__  # type: ignore[attr-defined]
_AUTOGRAD_CALLS = frozenset([torch.autograd.grad, torch.autograd.backward, torch.Tensor.backward])
_HOOKS = (torch.Tensor.register_hook, torch.Tensor.register_post_accumulate_grad_hook, torch.Tensor.retain_grad)

# Losses that torch writes in Python, at least for some arguments, so that their value is no single operator's.
_PYTHON_LOSSES = frozenset([F.multilabel_soft_margin_loss, F.kl_div, F.mse_loss, F.l1_loss])


class DeviceFunctions(TorchFunctionMode):
    """The function mode that gives Python code the device's view while `recorder` writes down the operators."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder
        self._handlers: Dict[Any, Callable[..., Any]] = {
            torch.Tensor.to: self._move_or_cast,
            torch.Tensor.cpu: lambda tensor, *_args, **_kw: self._move_or_cast(tensor, "cpu"),
            torch.Tensor.cuda: lambda tensor, *_args, **_kw: self._move_or_cast(tensor, "cuda"),
            torch.Tensor.type: self._read_or_change_type,
            torch.Tensor.type_as: self._move_or_cast,
            torch.Tensor.get_device: lambda tensor: IPU.index or 0,
            torch.Tensor.norm: _compute_norm,
            torch.norm: _compute_norm,
            F.gelu: _compute_gelu,
            torch.bincount: _count_classes,
            torch.Tensor.bincount: _count_classes,
            torch.Tensor.new: self._make_new,
            torch.Tensor.new_tensor: self._make_new_tensor,
            torch.Tensor.data.__get__: lambda tensor: tensor.detach(),  # type: ignore[attr-defined]
            torch.Tensor.__deepcopy__: lambda tensor, _memo: tensor.clone(),
            torch.Tensor.__repr__: self._show_tensor,
            torch.Tensor.__format__: self._format_tensor,
            torch.Tensor.__getitem__: partial(_read_or_write, torch.Tensor.__getitem__, read_dynamic),
            torch.Tensor.__setitem__: partial(_read_or_write, torch.Tensor.__setitem__, write_dynamic),
            **{hook: partial(self._pass_over_hook, hook) for hook in _HOOKS},
        }

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Args = (), kwargs: Optional[Kwargs] = None
    ) -> Any:
        """Apply the device's rules to one call of a torch function."""
        kwargs = dict(kwargs or {})
        subject = args[0] if args else None
        if isinstance(subject, DeviceTensor):
            if func in _HOST_READS:
                error = errors.host_read_error(_HOST_READS[func])
                return self.recorder.guesses.read(subject, func.__name__, error)
            if func in self._handlers:
                return self._handlers[func](*args, **kwargs)
        elif func in _MOVES and isinstance(subject, torch.Tensor):
            device = ("cuda",) if func is torch.Tensor.cuda else ()
            return self._move_or_cast(subject, *device, *args[1:], **kwargs)
        # `torch.func` differentiates operators that are recorded one by one, which leaves nothing to the device
        if func in _AUTOGRAD_CALLS and current_transform() is None:
            refuse(errors.autograd_error(func))
            return _make_gradients(*args, **kwargs) if func is torch.autograd.grad else None
        if func == _SET_DATA and any(isinstance(value, DeviceTensor) for value in args):
            refuse(errors.Refusal.REASSIGNED_DATA.error())
            return None
        if func in _SPARSE_FACTORIES:
            refuse(errors.unsupported_result_error(func.__name__, "sparse"))
            size = kwargs.get("size", args[_SPARSE_FACTORIES[func] :][:1] or ())
            return torch.zeros(*size, device=IPU)
        # `normal` of numbers makes a tensor anew, of tensors it is an operator on them
        is_factory = func in _FACTORIES or (func is torch.normal and not flatten_tensors((args, kwargs)))
        if is_factory or is_device(kwargs.get("device")):
            return self._make_on_device(func, args, kwargs)
        return self._compute_loss(func, args, kwargs) if func in _PYTHON_LOSSES else _call_factory(func, args, kwargs)

    def _pass_over_hook(self, hook: Callable[..., Any], *_args: object, **_kwargs: object) -> Optional[RemovableHandle]:
        self.recorder.reports.refuse(errors.autograd_error(hook))
        return None if hook is torch.Tensor.retain_grad else RemovableHandle(OrderedDict())

    def _compute_loss(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """Compute a loss whose result counts as one, whatever it is computed from."""
        # torch computes these from several operators: only the last of them is the loss
        nodes = self.recorder.graph.nodes
        last = next(iter(reversed(nodes)), None)
        result = func(*args, **kwargs)
        if isinstance(result, DeviceTensor):
            for node in itertools.takewhile(lambda node: node is not last, reversed(nodes)):
                node.meta["is_loss"] = node is result.node
        return result

    def _make_on_device(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """Run a factory: on the device when it is named there or nowhere."""
        # where there is an `out`, the device is its
        if _names_accelerator(kwargs.get("device")):
            refuse(errors.Refusal.MADE_ELSEWHERE.error(name=func.__name__, device=kwargs["device"]))
            kwargs = {**kwargs, "device": IPU}
        if ("device" in kwargs and not is_device(kwargs["device"])) or kwargs.get("out") is not None:
            return func(*args, **kwargs)
        # PopTorch does so too, and warns
        if "device" not in kwargs:
            note_forced_factory(self.recorder, func.__name__)
        if func in _FROM_DATA:
            return constant_from_data(self.recorder, func, args, kwargs)
        # a factory that follows a host tensor follows its shape, and makes the result on the device
        if func.__name__.endswith("_like") and args and is_host_tensor(args[0]):
            args = (torch.empty(args[0].shape, dtype=device_dtype(args[0].dtype), device=IPU), *args[1:])
        return _call_factory(func, args, {**kwargs, "device": IPU})

    def _make_new_tensor(self, tensor: DeviceTensor, data: object, **kwargs: Any) -> DeviceTensor:
        if "device" in kwargs and not is_device(kwargs["device"]):
            refuse(errors.Refusal.MOVE.error(device=kwargs["device"]))
        return constant_from_data(self.recorder, torch.tensor, (data,), {"dtype": tensor.dtype, **kwargs})

    def _make_new(self, tensor: DeviceTensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Make a tensor the old way: of a size, or from data."""
        if len(args) == 1 and not isinstance(args[0], (int, torch.Size)):
            return self._make_new_tensor(tensor, args[0], **kwargs)
        return tensor.new_empty(*(args or (0,)), **kwargs)

    def _move_or_cast(self, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Move and cast: to the device makes a constant of a host tensor, back to the host cannot be captured."""
        other = kwargs.get("other", args[0] if args else None)
        copy = kwargs.pop("copy", False)
        if [type(value) for value in args].count(bool) == 2:  # non_blocking and copy by position
            copy, args = args[-1], args[:-1]
        if isinstance(other, torch.Tensor):
            device, dtype, memory_format = other.device, other.dtype, kwargs.get("memory_format")
        else:
            device, dtype, _non_blocking, memory_format = split_to_arguments(*args, **kwargs)
        if isinstance(tensor, DeviceTensor):
            if device is not None and not is_device(device):
                tensor = self.recorder.guesses.move(tensor, errors.Refusal.MOVE.error(device=device))
        elif _names_accelerator(device):
            refuse(errors.Refusal.MOVE.error(device=device))
            tensor = self.recorder.add_constant(tensor)
        elif device is not None and is_device(device):
            tensor = self.recorder.add_constant(tensor)
        else:
            move: Callable[..., torch.Tensor] = torch.Tensor.to
            return move(tensor, *args, copy=copy, **kwargs)
        if isinstance(tensor, DeviceTensor) and dtype is not None:
            self.recorder.note_coercion(dtype, tensor.node)
        dtype = tensor.dtype if dtype is None else self.recorder.casts.dtype_of(dtype)
        if dtype == tensor.dtype and memory_format is None and not copy:
            return tensor
        memory = memory_format if memory_format is not None else torch.preserve_format
        return torch.Tensor.to(tensor, dtype, copy=copy, memory_format=memory)

    def _read_or_change_type(self, tensor: DeviceTensor, dtype: Optional[torch.dtype] = None, **_kwargs: object) -> Any:
        if dtype is None:
            # torch calls the class of dense tensors of a type `torch.FloatTensor`, and so on
            return str(_host_type(torch.empty(0, dtype=tensor.dtype, device="cpu"))).replace("torch.", "torch.ipu.")
        if not isinstance(dtype, torch.dtype):
            name = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
            name = re.sub(r"torch\.(ipu|cuda)\.", "torch.", name)
            dtype = torch.tensor([], device="cpu").type(name).dtype
        return tensor.to(dtype)

    def _show_tensor(self, tensor: DeviceTensor, **_kwargs: object) -> str:
        recorder = self.recorder
        error = errors.Refusal.PRINT.error(shape=list(tensor.shape), kind=dtype_name(tensor.dtype))
        if recorder.is_active and recorder.prints == "error":
            refuse(error)
        elif recorder.is_active:
            recorder.reports.add(error.finding)
        return tensor.describe()

    def _format_tensor(self, tensor: DeviceTensor, form: str) -> str:
        text = self._show_tensor(tensor)
        if tensor.dim() == 0 and form:
            refuse(errors.host_read_error("formatting a tensor as a number"))
        return text


_host_type: Callable[..., Any] = torch.Tensor.type


def _read_or_write(
    plain: Callable[..., Any], dynamic: Callable[..., Any], tensor: DeviceTensor, index: object, *value: Any
) -> Any:
    """Read or write by an index, which may have parts that are only known on the device."""
    # host tensors are refused here: further on lists are tensors too, and those are constants
    for part in index if isinstance(index, tuple) else (index,):
        if is_host_tensor(part) and part.dim() > 0:
            refuse(errors.host_tensor_error(part))
    return (dynamic if is_dynamic(index) else plain)(tensor, index, *value)


def _call_factory(func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Call a factory of torch, by its operator where that is the same.

    The function detaches what the operator has made, and the first tensor of a class that is detached lets torch import
    its distributed tensors, with the algebra system behind them.
    """
    if func not in _MADE_BY_OPERATORS or not kwargs.keys() <= {"dtype", "device"}:
        return func(*args, **kwargs)
    is_of_sizes = func not in _LIKE and func not in (torch.arange, torch.full)
    if is_of_sizes and args and all(type(size) is int for size in args):
        args = (args,)  # each size was an argument of its own
    return getattr(torch.ops.aten, func.__name__)(*args, **kwargs)


def _names_accelerator(device: object) -> bool:
    """Tell whether `device` names another accelerator than the one that `forward` is captured for."""
    kind = f"cuda:{device}" if isinstance(device, int) else str(device or "")
    return kind.split(":")[0] in ("cuda", "mps", "xpu", "hpu", "npu")


def _make_gradients(
    _outputs: object, inputs: Union[torch.Tensor, Sequence[torch.Tensor]], *_args: object, **_kwargs: object
) -> Any:
    """Return what `torch.autograd.grad` would, as far as shapes go."""
    return tuple(torch.zeros_like(tensor) for tensor in ([inputs] if isinstance(inputs, torch.Tensor) else inputs))


def _fill_in(data: object) -> Any:
    """Put a number in the place of each device tensor in nested lists."""
    if isinstance(data, (list, tuple)):
        return [_fill_in(item) for item in data]
    return 1.0 if isinstance(data, DeviceTensor) else data


def _compute_gelu(tensor: DeviceTensor, approximate: str = "none") -> torch.Tensor:
    if approximate not in ("none", "tanh"):
        refuse(errors.Refusal.UNKNOWN_GELU.error())
        approximate = "none"
    return F.gelu(tensor, approximate=approximate)


def _compute_norm(
    tensor: DeviceTensor,
    p: Union[float, str] = "fro",
    dim: Union[int, Sequence[int], None] = None,
    keepdim: bool = False,
    **kwargs: Any,
) -> torch.Tensor:
    """Take the norm as torch does on the CPU; for devices it does not know it goes a deprecated way."""
    if p == "fro" and (dim is None or isinstance(dim, int) or len(dim) <= 2):
        p = 2
    if isinstance(p, str):
        dims = list(range(tensor.dim())) if dim is None else dim
        return torch.linalg.matrix_norm(tensor, p, dims, keepdim, **kwargs)
    return torch.linalg.vector_norm(tensor, 2.0 if p is None else p, dim, keepdim, **kwargs)


def _count_classes(tensor: DeviceTensor, weights: Optional[torch.Tensor] = None, minlength: int = 0) -> torch.Tensor:
    """Count into `minlength` classes, which is the most as well as the least; other values are not counted."""
    if minlength < 1:
        refuse(errors.data_dependent_error("bincount"))
        minlength = 2
    classes = tensor.clamp(max=minlength)
    ones = torch.ones(tensor.shape, dtype=torch.int32, device=IPU) if weights is None else weights.float()
    counts = torch.zeros(minlength + 1, dtype=ones.dtype, device=IPU)
    return counts.scatter_add(0, classes, ones)[:minlength]


def note_forced_factory(recorder: Recorder, name: str) -> None:
    """Report that the factory `torch.<name>` makes a device tensor though nobody said so."""
    recorder.reports.add(
        Finding(
            "C011",
            message=f"No device set in torch.{name}(): forcing to IPU",
            place=caller_place(),
            help="name the device: `device=x.device`",
        )
    )


def constant_from_data(recorder: Recorder, func: Callable[..., torch.Tensor], args: Args, kwargs: Kwargs) -> Any:
    """Call `torch.tensor` or its like and make the result a constant; of a device tensor only `torch.tensor` is a copy.

    Raises CaptureError C001 for numbers that are device tensors themselves.
    """
    kwargs = {name: value for name, value in kwargs.items() if name not in ("device", "requires_grad")}
    data = args[0] if args else kwargs.get("data", kwargs.get("obj"))
    if isinstance(data, DeviceTensor):
        result = data.to(kwargs["dtype"]) if kwargs.get("dtype") else data
        # as in eager PyTorch, where `torch.tensor` copies and the others need not
        return data.clone() if result is data and func.__name__ == "tensor" else result
    if any(isinstance(value, DeviceTensor) for value in flatten_tensors(data)):
        refuse(
            errors.host_read_error(
                f"`torch.{func.__name__}` of a list of tensors", help="join them on the device: `torch.stack([a, b])`"
            )
        )
        args, kwargs = (_fill_in(data), *args[1:]), {key: kwargs[key] for key in kwargs if key not in ("data", "obj")}
    with DisableTorchFunction():
        return recorder.add_constant(func(*args, **kwargs))
