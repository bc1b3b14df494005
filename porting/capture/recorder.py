"""Records the ATen operators of one `forward` as a graph, without computing any value.

Operators are seen before autograd takes them apart, so a linear layer is one node and a loss keeps its name. Each is
run on fake tensors for its shapes, and written down with the casts that the device's types call for.
"""

from __future__ import annotations

import logging
import operator
from contextlib import contextmanager, nullcontext
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from ..diagnostics import CaptureError, Finding, Place, caller_place
from .device_tensor import DeviceTensor, is_device
from .dtypes import NARROWED, device_dtype, float_cast_targets, index_arguments, is_device_dtype

__all__ = ["Recorder"]

aten = torch.ops.aten

_HOST_READS = frozenset(["item", "_local_scalar_dense", "is_nonzero", "equal", "allclose", "__contains__"])
_TRANSFERS = frozenset(["copy_", "_to_copy", "to"])
_INDEXING = frozenset(["index", "index_put", "index_put_", "_index_put_impl_"])

# Buffers that these operators update without saying so in their schema: (flag argument, updated arguments).
_UNDECLARED_WRITES = {"batch_norm": (5, (3, 4)), "instance_norm": (5, (3, 4))}


class Recorder(ProxyTorchDispatchMode):
    """The dispatch mode that turns operators on device tensors into nodes of `graph`.

    torch admits only its own modes before autograd, hence the base class; nothing of its tracing is used.
    """

    def __init__(self, *, prints: str = "error") -> None:
        super().__init__(None, "fake", pre_dispatch=True)  # type: ignore[arg-type]
        self.graph = torch.fx.Graph()
        self.fake_mode = FakeTensorMode(allow_non_fake_inputs=False)
        self.module_stack: List[str] = []
        self.constants: List[Tuple[torch.fx.Node, torch.Tensor]] = []
        self.findings: List[Finding] = []
        self._host_state: Dict[int, DeviceTensor] = {}
        self._gradient_storages: Set[int] = set()
        self._gradient_tensors: Set[int] = set()
        self._parameter_nodes: Set[torch.fx.Node] = set()
        self._written: Set[int] = set()
        self._alive: List[Any] = []
        self._grad_enabled = True
        self.is_active = True
        self.prints = prints
        self._first_operator: Optional[torch.fx.Node] = None

    # -- placeholders ------------------------------------------------------------------------------------------

    def placeholder(self, name: str, like: torch.Tensor, *, kind: str) -> DeviceTensor:
        """Add a graph input called `name` with the shape of the host tensor `like` and the device's element type."""
        if not is_device_dtype(like.dtype) or like.layout != torch.strided or like.is_quantized:
            raise CaptureError.of(
                "C012",
                message=f"{kind} `{name}` has type {like.dtype} ({like.layout}), which the device does not have",
                place=caller_place(),
                help="convert it to float32, float16, int32, int16, int8, uint8 or bool before the call",
            )
        with self.graph.inserting_before(self._first_operator) if self._first_operator else nullcontext():
            node = self.graph.placeholder(_identifier(name))
        node.target = node.name  # the name of the argument, which must be as valid and unique as the node's
        with self.fake_mode:
            inner = torch.empty_strided(like.shape, like.stride(), dtype=device_dtype(like.dtype))
        tensor = self._wrap(inner, node)
        node.meta.update(kind=kind, state_name=name)
        if kind == "parameter":
            self._parameter_nodes.add(node)
            tensor._is_param = True  # type: ignore[attr-defined]
            if like.requires_grad:
                self._gradient_tensors.add(id(tensor))
        return tensor

    def stand_for(self, host: torch.Tensor, device: DeviceTensor) -> None:
        """Use `device` wherever an operator gets the host tensor `host` (lists of weights keep host objects)."""
        self._host_state[id(host)] = device
        self._alive.append(host)

    def constant(self, value: torch.Tensor) -> DeviceTensor:
        """Add a host tensor to the graph as a compile-time constant, narrowed to the device's type."""
        host = value.detach().clone().to(device_dtype(value.dtype))
        tensor = self.placeholder(f"constant_{len(self.constants)}", host, kind="constant")
        self.constants.append((tensor.node, host))
        return tensor

    def shallow_copy(self, tensor: DeviceTensor) -> DeviceTensor:
        """Return another handle on the same node."""
        return self._wrap(tensor.inner, tensor.node)

    # -- what the finished graph is asked --------------------------------------------------------------------

    def tracks_gradient(self, tensor: DeviceTensor) -> bool:
        """Tell whether a gradient path leads from a trainable parameter to `tensor`."""
        return id(tensor) in self._gradient_tensors or _storage(tensor) in self._gradient_storages

    def node_tracks_gradient(self, node: torch.fx.Node) -> bool:
        """Tell whether a gradient path leads from a trainable parameter to the value of `node`."""
        return any(t.node is node and self.tracks_gradient(t) for t in self._alive if isinstance(t, DeviceTensor))

    def on_print(self, tensor: DeviceTensor) -> None:
        """Refuse or note the printing of `tensor` by `forward`."""
        if not self.is_active:
            return
        finding = print_finding(tensor)
        if self.prints == "error":
            raise CaptureError(finding)
        self.findings.append(finding)

    def was_written(self, tensor: DeviceTensor) -> bool:
        """Tell whether an operator changed the memory of `tensor` in place."""
        return _storage(tensor) in self._written

    # -- recording -------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record `func` when it concerns the device; run it for real when all its tensors are the host's."""
        kwargs = dict(kwargs or {})
        leaves, spec = tree_flatten((args, kwargs))
        leaves = [self._host_state.get(id(leaf), leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        wants_device = is_device(kwargs.get("device"))
        if not wants_device and not any(isinstance(leaf, DeviceTensor) for leaf in leaves):
            return func(*args, **kwargs)
        self._refuse_host_reads(func)
        leaves = [self._admit(func, leaf) for leaf in leaves]
        args, kwargs = tree_unflatten(leaves, spec)
        for name in ("device", "generator", "pin_memory"):
            kwargs.pop(name, None)
        args = tuple(None if isinstance(arg, (torch.device, torch.Generator)) else arg for arg in args)
        args, kwargs = self._cast_arguments(func, args, kwargs)
        return self._record(func, args, kwargs)

    def _refuse_host_reads(self, func: Any) -> None:
        if func.overloadpacket.__name__ in _HOST_READS:
            raise host_read_error(f"`aten::{func.overloadpacket.__name__}`")

    def _admit(self, func: Any, leaf: Any) -> Any:
        """Let a leaf argument into the graph: narrow types, turn harmless host tensors into constants."""
        if isinstance(leaf, torch.dtype):
            if not is_device_dtype(leaf):
                raise CaptureError.of("C012", message=f"the device has no type {leaf}", place=caller_place())
            return device_dtype(leaf)
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if isinstance(leaf, DeviceTensor):
            if leaf.recorder is not self:
                return leaf.__torch_dispatch__(func, ())
            return leaf
        name = func.overloadpacket.__name__
        if leaf.dim() == 0 or name in _TRANSFERS or name in _INDEXING:
            return self.constant(leaf)
        raise host_tensor_error(leaf)

    def _cast_arguments(self, func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Tuple[Any, Any]:
        for name in index_arguments(func):
            args, kwargs = self._map_argument(func, args, kwargs, name, self._widen)
        tensors = _device_tensors((args, kwargs))
        are_parameters = [tensor.node in self._parameter_nodes for tensor in tensors]
        target = float_cast_targets(func, tensors, are_parameters)
        if target is not None:
            skip = _undeclared_writes(func, args)
            args, kwargs = tree_map(lambda leaf: self._cast_float(leaf, target, skip), (args, kwargs))
        return args, kwargs

    @staticmethod
    def _map_argument(
        func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], name: str, change: Callable[[Any], Any]
    ) -> Tuple[Any, Dict[str, Any]]:
        for position, argument in enumerate(func._schema.arguments):
            if argument.name == name and position < len(args):
                args = (*args[:position], change(args[position]), *args[position + 1 :])
            elif argument.name == name and name in kwargs:
                kwargs = {**kwargs, name: change(kwargs[name])}
        return args, kwargs

    def _widen(self, value: Any) -> Any:
        if isinstance(value, DeviceTensor) and not value.dtype.is_floating_point and value.dtype != torch.int64:
            return self._emit(aten.to.dtype, (value, torch.int64), {}, narrow=False)
        return value

    def _cast_float(self, leaf: Any, target: torch.dtype, skip: Sequence[Any]) -> Any:
        is_float = isinstance(leaf, DeviceTensor) and leaf.dtype.is_floating_point
        if not is_float or leaf.dtype == target or any(leaf is written for written in skip):
            return leaf
        return self._emit(aten.to.dtype, (leaf, target), {})

    def _record(self, func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        try:
            return self._emit(func, args, kwargs)
        except (DynamicOutputShapeException, DataDependentOutputException):
            raise data_dependent_error(func) from None
        except CaptureError:
            raise
        except Exception as error:
            retry = self._harmonised(args, kwargs)
            if retry is None:
                raise self._eager_error(func, args, kwargs, error) from None
            return self._emit(func, *retry)

    def _harmonised(self, args: Any, kwargs: Any) -> Optional[Tuple[Any, Any]]:
        """Promote mixed half and single operands, as the device does where plain torch refuses them."""
        floats = {t.dtype for t in _device_tensors((args, kwargs)) if t.dtype.is_floating_point}
        if len(floats) < 2:
            return None
        return tree_map(lambda leaf: self._cast_float(leaf, torch.float32, ()), (args, kwargs))  # type: ignore[no-any-return]

    def _eager_error(self, func: Any, args: Any, kwargs: Any, error: Exception) -> Exception:
        """Return what torch itself says about these shapes: its CPU kernels word errors otherwise than shape rules."""
        zeros = tree_map(_zeros_for, (args, kwargs))
        with _quiet_fake_tensors():
            try:
                func(*zeros[0], **zeros[1])
            except Exception as eager:
                return eager
        return CaptureError.of(
            "C013",
            message=f"`{func}` runs on the CPU but has no shape rule: {error}",
            place=caller_place(),
            help="compute it outside `forward`, or express it with other operators",
        )

    def _emit(self, func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], *, narrow: bool = True) -> Any:
        inner_args, inner_kwargs = tree_map(_inner_of, (args, kwargs))
        shapes = [(tensor, tensor.inner.shape) for tensor in _device_tensors((args, kwargs))]
        with torch.no_grad(), self.fake_mode, _quiet_fake_tensors():
            result = func(*inner_args, **inner_kwargs)
        for tensor, shape in shapes:
            if tensor.inner.shape != shape:
                raise metadata_error(func)
        self._sync_grad_mode()
        node_args, node_kwargs = tree_map(_node_of, (args, kwargs))
        node = self.graph.call_function(func, tuple(node_args), node_kwargs)
        self._describe(node)
        tracked = torch.is_grad_enabled() and any(self.tracks_gradient(t) for t in _device_tensors((args, kwargs)))
        writes = self._note_writes(func, args, kwargs, tracked)
        from_parameters = all(t.node in self._parameter_nodes for t in _device_tensors((args, kwargs)))
        outputs = self._wrap_outputs(func, args, kwargs, result, node, narrow=narrow and not writes)
        for tensor in _device_tensors(outputs):
            if tracked and tensor.dtype.is_floating_point and func.overloadpacket.__name__ != "detach":
                self._gradient_tensors.add(id(tensor))
            if from_parameters and shapes:
                self._parameter_nodes.add(tensor.node)
        return outputs

    def _describe(self, node: torch.fx.Node) -> None:
        self._first_operator = self._first_operator or node
        node.meta["module_path"] = self.module_stack[-1] if self.module_stack else ""
        node.meta["place"] = caller_place()

    def _sync_grad_mode(self) -> None:
        """Write `torch.no_grad()` and its like into the graph, where they change."""
        enabled = torch.is_grad_enabled()
        if enabled != self._grad_enabled:
            self._grad_enabled = enabled
            node = self.graph.call_function(torch._C._set_grad_enabled, (enabled,))
            self._describe(node)

    def _note_writes(self, func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], tracked: bool) -> List[Any]:
        written = list(_undeclared_writes(func, args))
        for position, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = args[position] if position < len(args) else kwargs.get(argument.name)
                written.extend(_device_tensors(value))
        for tensor in written:
            self._written.add(_storage(tensor))
            if tracked and tensor.dtype.is_floating_point:
                self._gradient_storages.add(_storage(tensor))
        return written

    def _wrap_outputs(
        self, func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], result: Any, node: Any, *, narrow: bool
    ) -> Any:
        if isinstance(result, torch.Tensor):
            written = _returned_argument(func, 0, args, kwargs)
            return written if written is not None else self._wrap_result(result, node, narrow)
        if isinstance(result, (tuple, list)):
            items = []
            for index, item in enumerate(result):
                written = _returned_argument(func, index, args, kwargs)
                if written is None and isinstance(item, torch.Tensor):
                    part = self.graph.call_function(operator.getitem, (node, index))
                    self._describe(part)
                    written = self._wrap_result(item, part, narrow)
                items.append(item if written is None else written)
            return type(result)(items) if type(result) in (tuple, list) else tuple(items)
        return result

    def _wrap_result(self, inner: torch.Tensor, node: torch.fx.Node, narrow: bool) -> DeviceTensor:
        if narrow and inner.dtype in NARROWED:
            target = NARROWED[inner.dtype]
            with self.fake_mode:
                inner = inner.to(target)
            node = self.graph.call_function(aten.to.dtype, (node, target))
            self._describe(node)
        elif not is_device_dtype(inner.dtype):
            raise CaptureError.of("C012", message=f"an operator returned {inner.dtype}", place=caller_place())
        return self._wrap(inner, node)

    def _wrap(self, inner: torch.Tensor, node: torch.fx.Node) -> DeviceTensor:
        tensor = DeviceTensor(inner, node, self)
        node.meta["val"] = inner
        self._alive.append(tensor)
        return tensor


def _identifier(name: str) -> str:
    return "".join(character if character.isalnum() else "_" for character in name)


def _storage(tensor: DeviceTensor) -> int:
    return int(tensor.inner.untyped_storage()._cdata)


def _inner_of(leaf: Any) -> Any:
    return leaf.inner if isinstance(leaf, DeviceTensor) else leaf


def _node_of(leaf: Any) -> Any:
    return leaf.node if isinstance(leaf, DeviceTensor) else leaf


def _zeros_for(leaf: Any) -> Any:
    return torch.zeros(leaf.shape, dtype=leaf.dtype) if isinstance(leaf, DeviceTensor) else leaf


def _device_tensors(value: Any) -> List[DeviceTensor]:
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, DeviceTensor)]


def _undeclared_writes(func: Any, args: Tuple[Any, ...]) -> List[DeviceTensor]:
    flag, positions = _UNDECLARED_WRITES.get(func.overloadpacket.__name__, (0, ()))
    if not positions or len(args) <= flag or not args[flag]:
        return []
    return [args[position] for position in positions if isinstance(args[position], DeviceTensor)]


def _returned_argument(func: Any, index: int, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Optional[DeviceTensor]:
    """Return the argument that an in-place or `out=` operator hands back as result number `index`."""
    returns = func._schema.returns
    alias = returns[index].alias_info if index < len(returns) else None
    if alias is None or not alias.is_write:
        return None
    for position, argument in enumerate(func._schema.arguments):
        info = argument.alias_info
        if info is not None and info.is_write and info.before_set == alias.before_set:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            return value if isinstance(value, DeviceTensor) else None
    return None


@contextmanager
def _quiet_fake_tensors() -> Iterator[None]:
    """Keep torch from logging a traceback for each operator that fails on fake tensors: the error itself is raised."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = disabled


# -- errors ------------------------------------------------------------------------------------------------------


def host_read_error(what: str, place: Optional[Place] = None) -> CaptureError:
    """Return the error for reading a tensor's value in `forward`."""
    return CaptureError.of(
        "C001",
        message=f"{what} reads a tensor's value on the host while `forward` is captured",
        place=place or caller_place(),
        label="the value does not exist yet: the graph is compiled before it runs",
        help="keep the value on the device (`torch.where`, arithmetic on tensors) or return the tensor and read it "
        "after the call",
    )


def host_tensor_error(tensor: torch.Tensor) -> CaptureError:
    """Return the error for a plain CPU tensor among an operator's arguments."""
    kind = str(tensor.dtype).replace("torch.", "")
    return CaptureError.of(
        "C003",
        message=f"a CPU tensor of shape {list(tensor.shape)} and type {kind} is mixed with device tensors",
        place=caller_place(),
        label="this operator gets a tensor that lives on the host",
        notes=(f"shape={list(tensor.shape)}", f"dtype={kind}"),
        help="register it with `self.register_buffer(...)`, or move it with `.to('ipu')` (a constant of the graph)",
    )


def data_dependent_error(func: Any) -> CaptureError:
    """Return the error for an operator whose output shape depends on values."""
    name = func.overloadpacket.__name__
    return CaptureError.of(
        "C002",
        message=f"the output shape of `aten::{name}` depends on the values of its input",
        place=caller_place(),
        label="a static graph has to know every shape when it is compiled",
        help="keep the shape fixed: `torch.where(mask, x, 0)` instead of `x[mask]`, `topk` instead of `nonzero`",
    )


def metadata_error(func: Any) -> CaptureError:
    """Return the error for in-place operators that change a shape."""
    return CaptureError.of(
        "C015",
        message=f"`{func}` changes the shape of a tensor in place",
        place=caller_place(),
        help="use the version that returns a new tensor, for example `unsqueeze` for `unsqueeze_`",
    )


def print_finding(tensor: DeviceTensor) -> Finding:
    """Return the finding for printing a tensor in `forward`."""
    return Finding(
        "C010",
        message="`forward` prints a tensor, but its value does not exist while the graph is captured",
        place=caller_place(),
        label="on the device this prints `<unavailable>`, once, at compile time",
        notes=(f"the tensor has shape {tuple(tensor.shape)} and type {tensor.dtype}",),
        help="return the tensor from `forward`, or use `poptorch.ipu_print_tensor`",
    )
