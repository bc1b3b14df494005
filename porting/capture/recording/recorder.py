"""Records the ATen operators of one `forward` as a graph, without computing any value.

Operators are seen before autograd takes them apart, so a linear layer is one node and a loss keeps its name. Each is
run on fake tensors for its shapes, and written down with the casts that the device's types call for.
"""

from __future__ import annotations

import operator
from contextlib import nullcontext
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import torch

from ...diagnostics import CaptureError, caller_place, refuse
from ...support.function_modes import Args, Kwargs
from ...torch_insides.autograd import clear_transforms, current_transform
from ...torch_insides.fake_tensors import DataDependentOutputException, DynamicOutputShapeException
from ...torch_insides.modes import DisableTorchFunction
from ...torch_insides.operators import SET_GRAD_ENABLED, OpOverload
from ...torch_insides.tensors import mark_as_parameter
from ...torch_insides.trees import tree_leaves
from .. import errors
from ..device_operators import device_operator
from ..device_tensor import DeviceTensor, is_device
from ..dtypes import device_dtype, index_arguments, is_device_dtype, mask_arguments
from ..errors import Refusal
from ..operator_mode import OperatorMode
from ..operator_schema import (
    change_arguments,
    device_tensors,
    list_leaves,
    map_leaves,
    operator_name,
    replace_numbers,
    result_argument,
    written_arguments,
)
from ..shape_mode import ShapeMode
from .admission import admit_leaf, is_own
from .bodies import Bodies
from .call_log import ADDED_CONSTANT, COPIED_HANDLE, Calls
from .float_casts import FloatCasts
from .guesses import Guesses
from .reports import Reports
from .result_shapes import result_shape
from .tensor_facts import TensorFacts
from .written_results import record_write

__all__ = ["Recorder"]

aten = torch.ops.aten

_HOST_READS = frozenset(["item", "_local_scalar_dense", "is_nonzero", "equal", "allclose", "__contains__"])
# what arguments of operators are besides tensors, if they are no matter of types and devices
_ADMITTED = frozenset([bool, int, float, str, type(None)])


class Recorder(OperatorMode):
    """The dispatch mode that turns operators on device tensors into nodes of `graph`."""

    def __init__(
        self,
        *,
        reports: Reports,
        prints: str,
        is_training: bool,
        node_facts: Optional[Callable[[], Mapping[str, Any]]],
        autocast: Optional[torch.dtype],
        starts_false: bool = False,
    ) -> None:
        super().__init__()
        self.graph = torch.fx.Graph()
        self.fake_mode = ShapeMode()
        self.module_stack: List[Tuple[str, torch.nn.Module]] = []
        self.constants: List[Tuple[torch.fx.Node, torch.Tensor]] = []
        self.reports = reports
        self.coercions: List[Tuple[torch.dtype, int]] = []
        self.facts = TensorFacts()
        self.is_active = True
        self.is_training = is_training
        self.prints = prints
        self._node_facts = node_facts
        # host tensors are held, so that no other one gets the `id` of one while the capture lasts
        self._placed: Dict[int, Tuple[torch.Tensor, DeviceTensor]] = {}
        self._grad_enabled = True
        self.first_operator: Optional[torch.fx.Node] = None
        self.bodies = Bodies(self)
        self.casts = FloatCasts(self, autocast)
        self.calls: Optional[Calls] = None
        self.guesses = Guesses(self, starts_false=starts_false)

    @property
    def placed(self) -> List[Tuple[torch.Tensor, DeviceTensor]]:
        """The parameters and buffers of the host, each with the device tensor that stands for it."""
        return list(self._placed.values())

    def place(self, host: torch.Tensor, tensor: DeviceTensor) -> None:
        """Let `tensor` stand for `host` wherever an operator gets that one."""
        self._placed[id(host)] = host, tensor

    # -- placeholders ------------------------------------------------------------------------------------------

    def add_placeholder(self, name: str, like: torch.Tensor, *, kind: str) -> DeviceTensor:
        """Add a graph input called `name` with the shape of the host tensor `like` and the device's element type.

        A parameter or buffer stands for its host tensor wherever an operator gets that one.
        """
        if not is_device_dtype(like.dtype) or like.layout != torch.strided or like.is_quantized:
            refuse(errors.unsupported_type_error(f"{kind} `{name}`", like))
        # a constant may be met at any time, and placeholders come before all operators
        identifier = "".join(character if character.isalnum() else "_" for character in name)
        with self.graph.inserting_before(self.first_operator) if self.first_operator else nullcontext():
            node = self.graph.placeholder(identifier)
        node.target = node.name  # the name of the argument, which must be as valid and unique as the node's
        # weights keep the memory layout that the user chose; inputs arrive contiguous
        strides = like.stride() if kind != "input" else None
        fake = self.fake_mode.make_empty(like.shape, dtype=device_dtype(like.dtype), strides=strides)
        tensor = self._wrap_fake(fake, node)
        node.meta.update(kind=kind, state_name=name)
        # lists of weights, such as those of recurrent layers, hold the host's tensors still
        if kind in ("parameter", "buffer"):
            self.place(like, tensor)
        if kind == "parameter":
            # `isinstance(tensor, nn.Parameter)` goes by this attribute
            mark_as_parameter(tensor)
            self.facts.add_parameter(tensor, trainable=like.requires_grad)
        return tensor

    def device_of(self, host: torch.Tensor) -> DeviceTensor:
        """Return the device tensor that stands for the parameter or buffer `host`."""
        return self._placed[id(host)][1]

    def add_constant(self, value: torch.Tensor) -> DeviceTensor:
        """Add a host tensor to the graph as a compile-time constant, narrowed to the device's type.

        Raises CaptureError C003 for one that requires a gradient, and C012 for one of a type that the device lacks.
        """
        if not is_device_dtype(value.dtype) or value.layout != torch.strided:
            refuse(errors.unsupported_type_error("a constant of the graph", value))
        if value.requires_grad:
            refuse(Refusal.DIFFERENTIABLE_CONSTANT.error())
        return self._take_call(ADDED_CONSTANT, (value,), {}, lambda: self._add_constant(value))

    def _add_constant(self, value: torch.Tensor) -> Any:
        # a copy: what `forward` does to its tensor later must not reach the program
        host = value.detach().clone().to(device_dtype(value.dtype))
        with self.bodies.at_root():
            tensor = self.add_placeholder(f"constant_{len(self.constants)}", host, kind="constant")
        self.note_coercion(value.dtype, tensor.node)
        self.constants.append((tensor.node, host))
        # what a body makes is new each time that it runs
        return self._emit_node(aten.clone.default, (tensor,), {}) if self.bodies.kinds else tensor

    def note_coercion(self, dtype: torch.dtype, node: torch.fx.Node) -> None:
        """Note that the value of `node` would have the type `dtype`, if the device had it."""
        if self.casts.dtype_of(dtype) != dtype:
            node.meta["coerced_from"] = dtype
            node.meta["coerced_at"] = caller_place()
            self.coercions.append((dtype, len(self.graph.nodes)))

    def call(self, func: OpOverload, *args: Any, **kwargs: Any) -> Any:
        """Record the operator `func` on device tensors of the right types, and return its results."""
        return self._emit_node(func, args, kwargs)

    def call_function(
        self, function: Callable[..., Any], args: Args, results: Sequence[torch.Tensor]
    ) -> List[DeviceTensor]:
        """Record a call of the Python `function`, which returns a sequence of tensors like the fake ones `results`.

        `args` may hold device tensors, nodes of the graph that is being recorded, and anything else.
        """
        node = self._add_node(function, map_leaves(self._find_node, args))
        node.meta["operator"] = function.__name__
        return [self._wrap_item(fake, node, index, narrow=True) for index, fake in enumerate(results)]

    def make_fake(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor of `shape` without values, of the device's type for `dtype`, in memory of its own."""
        return self.fake_mode.make_empty(shape, dtype=self.casts.dtype_of(dtype))

    def host_of(self, tensor: torch.Tensor) -> Optional[torch.Tensor]:
        """Return the parameter or buffer of the host that the device tensor `tensor` stands for, or None."""
        return next((host for host, device in self._placed.values() if device is tensor), None)

    def shallow_copy(self, tensor: DeviceTensor) -> DeviceTensor:
        """Return another handle on the same node."""
        return self._take_call(COPIED_HANDLE, (tensor,), {}, lambda: self._wrap_fake(tensor.fake, tensor.node))

    @property
    def module(self) -> str:
        """The part of the model whose `forward` is running, for messages; empty for the model itself."""
        path, module = self.module_stack[-1] if self.module_stack else ("", None)
        return f"`{path}` ({type(module).__name__})" if path else ""

    # -- recording -------------------------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: OpOverload, types: Sequence[type], args: Args = (), kwargs: Optional[Kwargs] = None
    ) -> Any:
        """Record `func` when it concerns the device; run it for real when all its tensors are the host's."""
        # scripted modules get here with the function mode in force, which is for the user's calls only
        with DisableTorchFunction():
            if current_transform() is None:
                return self._record_operator(func, args, dict(kwargs or {}))
            with clear_transforms():
                if not any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves((args, kwargs))):
                    return self._record_operator(func, args, dict(kwargs or {}))
                # a number would be kept, for the gradient, as what torch cannot read as a number any more
                args = tuple(replace_numbers(func, args, self.add_constant))
            return func(*args, **(kwargs or {}))  # what this makes comes back by `DeviceTensor.__torch_dispatch__`

    def _record_operator(self, func: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        special = device_operator(func)
        placed_args, placed_kwargs, asked = self._place_leaves(args, kwargs)
        if special is not None and special.record is not None:
            self._note_other()  # it may do more than record, and its meaning lies in what comes before it
            return special.record(self, *placed_args, **placed_kwargs)
        if not any(
            isinstance(leaf, DeviceTensor) or (isinstance(leaf, torch.device) and is_device(leaf)) for leaf in asked
        ):
            # what `forward` does with tensors of the host alone is done now, once, by torch itself
            return func(*args, **kwargs)
        record = partial(self._record_placed, func, placed_args, placed_kwargs, asked)
        return self._take_call(func, placed_args, placed_kwargs, record)

    def _take_call(self, func: Union[OpOverload, str], args: Args, kwargs: Kwargs, record: Callable[[], Any]) -> Any:
        return record() if self.calls is None else self.calls.take(self, func, args, kwargs, record)

    def _note_other(self) -> None:
        if self.calls is not None:
            self.calls.note_other()

    def _record_placed(self, func: OpOverload, placed_args: Args, placed_kwargs: Kwargs, asked: List[Any]) -> Any:
        special, name = device_operator(func), operator_name(func)
        # whatever Python would get to see here has no value yet
        if name in _HOST_READS:
            tensor = next(leaf for leaf in asked if isinstance(leaf, DeviceTensor))
            return self.guesses.read(tensor, name, errors.host_read_error(f"`aten::{name}`"))
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            with self.casts.in_place_of_autocast():
                return self._record_placed(func, placed_args, placed_kwargs, asked)
        args, kwargs = self._admit_leaves(name, placed_args, placed_kwargs, asked)
        # shape rules run on the CPU, and the graph is for one device: a place has no meaning in it
        for keyword in ("device", "pin_memory"):
            kwargs.pop(keyword, None)
        if special is not None:
            return self._emit_node(func, *self.casts.without_lower(args, kwargs))
        # the device has 32-bit integers; kernels of the CPU want indices of 64 bits and masks of bools
        args, kwargs = change_arguments(func, args, kwargs, index_arguments(func), self._widen_indices)
        args, kwargs = change_arguments(func, args, kwargs, mask_arguments(func), self._cast_masks)
        # gradients are dense on the device, whatever an embedding asks for; a factor of a product is `sparse`, too
        dense, named = change_arguments(func, args, kwargs, ("sparse", "sparse_grad"), lambda it: it is not True and it)
        result = self.casts.record(func, dense, named)
        if (dense, named) != (args, kwargs):
            node = result.node if isinstance(result, DeviceTensor) else result[0].node.args[0]  # the call of several
            node.meta["asks_for_sparse"] = True
        if isinstance(result, DeviceTensor):
            for leaf in asked:
                if isinstance(leaf, torch.dtype):
                    self.note_coercion(leaf, result.node)
        return result

    def _place_leaves(self, args: Args, kwargs: Kwargs) -> Tuple[Any, Dict[str, Any], List[Any]]:
        """Put device tensors in the place of the host's that they stand for; return the arguments and their leaves."""
        leaves = list_leaves((args, kwargs))
        if any(id(leaf) in self._placed for leaf in leaves):
            args, kwargs = map_leaves(
                lambda leaf: self._placed[id(leaf)][1] if id(leaf) in self._placed else leaf, (args, kwargs)
            )
            leaves = list_leaves((args, kwargs))
        return args, kwargs, leaves

    def _admit_leaves(self, name: str, args: Args, kwargs: Kwargs, leaves: Sequence[Any]) -> Tuple[Any, Any]:
        """Let arguments into the graph; usual ones are what they should be."""
        if all(type(leaf) in _ADMITTED or is_own(self, leaf) for leaf in leaves):
            return args, kwargs
        admitted: Tuple[Any, Any] = map_leaves(lambda leaf: admit_leaf(self, name, leaf), (args, kwargs))
        return admitted

    def _cast_masks(self, value: object) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._cast_masks(item) for item in value]
        is_mask = isinstance(value, DeviceTensor) and value.dtype == torch.uint8
        return self._emit_node(aten.to.dtype, (value, torch.bool), {}) if is_mask else value

    def _widen_indices(self, value: object) -> Any:
        if isinstance(value, DeviceTensor) and not value.dtype.is_floating_point and value.dtype != torch.int64:
            return self._emit_node(aten.to.dtype, (value, torch.int64), {}, narrow=False)
        return value

    def record_as_is(self, func: OpOverload, args: Args, kwargs: Kwargs) -> Any:
        """Record `func` on arguments that have the types it is to get."""
        name = operator_name(func)
        # autograd would refuse it when the graph is replayed, far away from the line that does it
        self.facts.refuse_writes_to_leaves(device_tensors(written_arguments(func, args, kwargs)))
        try:
            written = record_write(self, func, args, kwargs)
            return self._emit_node(func, args, kwargs) if written is None else written
        except DynamicOutputShapeException:
            refusal = errors.data_dependent_error(name)
        except DataDependentOutputException:
            refusal = errors.value_dependent_error(name)
        except CaptureError:
            raise
        except Exception as error:
            promoted = self.casts.promote(func, args, kwargs)
            if promoted is not None:
                return self._emit_node(func, *promoted)
            refusal = Refusal.NO_SHAPE_RULE.error(operator=func, error=error)
        return self._emit_node(func, args, kwargs, example=self.guesses.make_result(func, args, kwargs, refusal))

    def _emit_node(
        self, func: OpOverload, args: Args, kwargs: Kwargs, *, narrow: bool = True, example: Any = None
    ) -> Any:
        # shapes are kept: rules for shapes may change the tensors that they get
        tensors = device_tensors((args, kwargs))
        shapes = [tensor.fake.shape for tensor in tensors]
        result = result_shape(self.fake_mode, func, args, kwargs) if example is None else example
        # a view that is turned in place would make other nodes wrong that were recorded with its former shape
        for tensor, shape in zip(tensors, shapes):
            if tensor.fake.shape != shape:
                raise Refusal.METADATA.error(name=operator_name(func), plain_name=operator_name(func).rstrip("_"))
        writes = device_tensors(written_arguments(func, args, kwargs))
        unchanged = next((tensor for tensor in tensors if tensor.fake is result), None)
        if unchanged is not None and not writes and device_operator(func) is None:
            return unchanged  # torch itself has nothing to do, as in a cast to the type that a tensor has
        self.sync_grad_mode()
        node_args, node_kwargs = map_leaves(self._find_node, (args, kwargs))
        # as autograd decides it: what is computed without gradients leads none back
        tracked = torch.is_grad_enabled() and any(self.facts.tracks_gradient(tensor) for tensor in tensors)
        node = self._add_node(func, tuple(node_args), node_kwargs)
        node.meta.update({} if example is None else {"is_refused": True})
        self.facts.note_writes(self.bodies.own_writes(writes), node, tracked=tracked)
        outputs = self._wrap_outputs(node, args, kwargs, result, narrow=narrow and not writes)
        self.facts.note_results(device_tensors(outputs), tensors, tracked=tracked and operator_name(func) != "detach")
        return outputs

    def _find_node(self, leaf: object) -> Any:
        return self.bodies.local_node(leaf) if isinstance(leaf, DeviceTensor) else leaf

    def _add_node(self, target: Callable[..., Any], args: Args, kwargs: Optional[Kwargs] = None) -> torch.fx.Node:
        self._note_other()
        node = self.graph.call_function(target, args, kwargs)
        self.first_operator = self.first_operator or node
        node.meta["module_path"] = self.module_stack[-1][0] if self.module_stack else ""
        node.meta["place"] = caller_place()
        if self._node_facts is not None:
            node.meta.update(self._node_facts())
        return node

    def sync_grad_mode(self) -> None:
        """Write `torch.no_grad()` and its like into the graph, where they change; inference never differentiates."""
        enabled = torch.is_grad_enabled()
        if self.is_training and enabled != self._grad_enabled:
            self._grad_enabled = enabled
            self._add_node(SET_GRAD_ENABLED, (enabled,))

    def _wrap_outputs(self, node: torch.fx.Node, args: Args, kwargs: Kwargs, result: object, *, narrow: bool) -> Any:
        if isinstance(result, torch.Tensor):
            node.meta["val"] = result
            written = result_argument(node.target, 0, args, kwargs)
            return written if written is not None else self._wrap_result(result, node, narrow=narrow)
        if isinstance(result, (tuple, list)):
            items = []
            for index, item in enumerate(result):
                written = result_argument(node.target, index, args, kwargs)
                if written is None and isinstance(item, torch.Tensor):
                    written = self._wrap_item(item, node, index, narrow=narrow)
                items.append(item if written is None else written)
            # `forward` unpacks the named tuples that some operators return as it does plain ones
            return items if type(result) is list else tuple(items)
        return result

    def _wrap_item(self, fake: torch.Tensor, node: torch.fx.Node, index: int, *, narrow: bool) -> DeviceTensor:
        return self._wrap_result(fake, self._add_node(operator.getitem, (node, index)), narrow=narrow)

    def _wrap_result(self, fake: torch.Tensor, node: torch.fx.Node, *, narrow: bool) -> DeviceTensor:
        wide, target = fake.dtype, self.casts.dtype_of(fake.dtype)
        if not is_device_dtype(wide) or fake.layout != torch.strided:
            # of several results the operator that made them is named
            source: Any = node.args[0] if node.target is operator.getitem else node
            kind = str(wide if fake.layout == torch.strided else fake.layout)
            # what is made of such a tensor is another one, and no fault of its own
            if all(is_device_dtype(used.meta["val"].dtype) for used in source.all_input_nodes if "val" in used.meta):
                refuse(errors.unsupported_result_error(operator_name(source.target), kind))
        if narrow and target != wide:
            # the operator computes what it does on the CPU; the device's type is a cast of that
            node.meta["val"] = fake
            fake = result_shape(self.fake_mode, aten.to.dtype, (fake, target), {})
            node = self._add_node(aten.to.dtype, (node, target))
            self.note_coercion(wide, node)
        return self._wrap_fake(fake, node)

    def _wrap_fake(self, fake: torch.Tensor, node: torch.fx.Node) -> DeviceTensor:
        tensor = DeviceTensor(fake, node, self)
        node.meta["val"] = fake
        self.facts.add(tensor)
        return tensor
