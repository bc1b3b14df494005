"""Tensors without values, and what operators make of them: by rules of our own where those know, else by torch's.

Torch's own rules cost about a millisecond for each operator, and load its compiler. Ours, arithmetic on Python numbers,
cover contiguous tensors of one floating-point type, and raise `UnknownShape` for all else and for all that is wrong.
What is small enough is tried before torch's rules are asked: its kernels need neither.
"""

# ruff: noqa: N803 - names of tensors end in their shapes
from __future__ import annotations

import threading
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from typing import Any, Callable, ContextManager, Dict, List, Optional, Sequence, Union

import torch
from torch import Tensor

from ..support.compiler_loading import is_compiler_loaded
from ..torch_insides.fake_tensors import FakeTensor, FakeTensorMode
from ..torch_insides.modes import DisablePythonDispatcher, DisableTorchDispatch, TorchDispatchMode
from .device_operators import device_operator
from .factory_shapes import FACTORIES
from .layer_shapes import LAYERS
from .loss_shapes import LOSSES
from .plain_shapes import (
    UnknownShape,
    are_floats,
    are_numbers,
    are_plain,
    combine,
    expect,
    fits,
    has_any_layout,
    is_contiguous,
    is_in_order,
    is_turned,
    new_tensor,
)
from .tried_shapes import try_operator

__all__ = ["UNKNOWN", "ShapeMode", "in_order_of", "rule_for"]

UNKNOWN: Any = object()
"""The answer where only torch's own rules can tell."""

_CPU = torch.device("cpu")
# where a tensor of this mode keeps the meta tensor behind it
_PLAIN = "_porting_plain"


class ShapeMode(FakeTensorMode):
    """torch's mode for tensors without values, which is made ready when an operator needs it.

    Its constructor loads torch's compiler and the algebra system behind it, a second of work that a program which
    trains a usual model never needs: `result_of` knows what usual operators make of contiguous tensors.
    """

    # entered while the compiler is loaded
    around_loading: Callable[[], ContextManager[Any]] = nullcontext

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)
        # what making a tensor reads; all else is filled in by `_finish_construction`
        self.in_kernel_invocation = False
        self.allow_meta = False
        self._allow_unsafe_data_ptr_access = True
        self._is_ready = False

    def __enter__(self) -> Any:
        self._finish_construction()
        return super().__enter__()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or self.__dict__.get("_is_ready", True):
            raise AttributeError(f"`{type(self).__name__}` has no attribute `{name}`")
        self._finish_construction()
        return getattr(self, name)

    def _finish_construction(self) -> None:
        if self._is_ready:
            return
        self._is_ready = True
        if not is_compiler_loaded():
            # in a thread of its own none of the modes is in force that the operator was called in
            loading = threading.Thread(target=import_module, args=("torch._dynamo",))
            with self.around_loading():
                loading.start()
                loading.join()
        super().__init__(allow_non_fake_inputs=False)

    def make_empty(
        self, shape: Sequence[int], *, dtype: torch.dtype, strides: Optional[Sequence[int]] = None
    ) -> torch.Tensor:
        """Return a tensor without values in memory of its own, contiguous unless `strides` are given."""
        # the modes of the capture would take the meta tensor for one of the user's
        with DisablePythonDispatcher():
            if strides is None:
                return self.make_face(torch.empty(tuple(shape), dtype=dtype, device="meta"))
            return self.make_face(torch.empty_strided(tuple(shape), tuple(strides), dtype=dtype, device="meta"))

    def result_of(self, operator: Callable[..., Any], args: Sequence[Any], kwargs: Dict[str, Any]) -> Any:
        """Return what `operator` makes of tensors of this mode, or `UNKNOWN` where only torch's own rules can tell.

        Views share the memory of what they show, and an operator that hands back an argument hands back that object.
        """
        rule = rule_for(operator)
        return UNKNOWN if rule is None else self._apply_rule(rule, args, kwargs)

    def try_result_of(self, operator: Callable[..., Any], args: Sequence[Any], kwargs: Dict[str, Any]) -> Any:
        """Return what `operator` makes of small tensors of zeros like these, or `UNKNOWN` where those do not tell."""
        return self._apply_rule(lambda *args, **kwargs: try_operator(operator, args, kwargs), args, kwargs)

    def _apply_rule(self, rule: Callable[..., Any], args: Sequence[Any], kwargs: Dict[str, Any]) -> Any:
        faces: Dict[int, torch.Tensor] = {}
        try:
            plain_args = [self._find_plain(value, faces) for value in args]
            plain_kwargs = {name: self._find_plain(value, faces) for name, value in kwargs.items()}
            with DisablePythonDispatcher():
                return self._find_faces(rule(*plain_args, **plain_kwargs), faces)
        except (UnknownShape, AttributeError, TypeError, ValueError, RuntimeError, IndexError):
            return UNKNOWN  # torch says what is wrong, if anything is: `torch.add(2.5, x)` has a number for a tensor

    def _find_plain(self, value: object, faces: Dict[int, torch.Tensor]) -> Any:
        """Return an argument with torch's meta tensors in it, and note in `faces` what they stand behind."""
        if isinstance(value, FakeTensor) and value.fake_mode is self:
            plain = _read_plain(value)
            faces[id(plain)] = value
            return plain
        # a tensor with values may be looked at, and one of another mode has its own rules
        if isinstance(value, torch.Tensor):
            raise UnknownShape
        if isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
            return [self._find_plain(item, faces) for item in value]
        return value

    def _find_faces(self, result: Any, faces: Dict[int, torch.Tensor]) -> Any:
        if isinstance(result, torch.Tensor):
            # an operator in place returns its argument: the same object again
            known = faces.get(id(result))
            return known if known is not None else self.make_face(result)
        return type(result)([self._find_faces(item, faces) for item in result])

    def make_face(self, plain: torch.Tensor) -> torch.Tensor:
        """Return torch's tensor without values for a meta tensor, which it remembers."""
        face = FakeTensor(self, plain, _CPU)
        face.__dict__[_PLAIN] = plain
        return face


def in_order_of(tensor: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """Return a view of all of a tensor without values, the elements of which lie in memory as `strides` say."""
    if not isinstance(tensor, FakeTensor) or not isinstance(tensor.fake_mode, ShapeMode):
        return tensor.as_strided(tensor.shape, tuple(strides))
    plain = _read_plain(tensor)
    with DisablePythonDispatcher():
        return tensor.fake_mode.make_face(plain.as_strided(plain.shape, tuple(strides)))


def _read_plain(face: FakeTensor) -> torch.Tensor:
    """Return the meta tensor behind `face`, which operators may have given another shape since."""
    plain: Optional[torch.Tensor] = face.__dict__.get(_PLAIN)
    if plain is None or plain.shape != face.shape or plain.stride() != face.stride():
        with DisablePythonDispatcher(), DisableTorchDispatch():
            plain = torch.empty(0, dtype=face.dtype, device="meta")
            plain.set_(face.untyped_storage(), face.storage_offset(), face.shape, face.stride())
        face.__dict__[_PLAIN] = plain
    return plain


aten = torch.ops.aten


def rule_for(operator: Callable[..., Any]) -> Optional[Callable[..., Any]]:
    """Return what tells the results of `operator` on torch's meta tensors, or raises `UnknownShape`; None without."""
    special = device_operator(operator)
    return _RULES.get(operator) if special is None else special.rule


# Integer types that stay as they are beside a Python integer.
_COUNTS = frozenset([torch.int64, torch.int32])
# whether a dropout that drops nothing returns the tensor itself, to which a later write goes: versions of torch differ
_KEPT_BY_DROPOUT = [torch.dropout(one, 0.0, train) is one for one in [torch.ones(1)] for train in (False, True)]

# -- element by element -----------------------------------------------------------------------------------------------


def _infer_same(tensor: Tensor, *numbers: Any) -> Tensor:
    expect(are_floats(tensor) and are_numbers(*numbers))
    return combine(tensor, tensor)


def _infer_same_in_place(tensor: Tensor, *numbers: Any) -> Tensor:
    expect(are_plain(tensor, layout=is_in_order) and are_numbers(*numbers))
    return tensor


def _infer_gelu(tensor: Tensor, *, approximate: str = "none") -> Tensor:
    expect(approximate in ("none", "tanh"))
    return _infer_same(tensor)


def _infer_arithmetic(
    one: Tensor, other: Union[Tensor, float], *, alpha: float = 1, dtype: Optional[torch.dtype] = None
) -> Tensor:
    expect(are_numbers(alpha))
    if not isinstance(other, Tensor):
        is_count = type(other) is int and one.dtype in _COUNTS
        expect(is_contiguous(one) if is_count else type(other) in (int, float) and are_floats(one))
        return combine(one, one, dtype)
    # a scalar changes no type of its kind, and an integer none at all
    if one.dtype != other.dtype and 0 not in (one.dim(), other.dim()):
        expect(are_floats(one) and are_floats(other))
        dtype = dtype or torch.promote_types(one.dtype, other.dtype)
    elif one.dtype in _COUNTS:
        expect(other.dtype == one.dtype and is_contiguous(one) and is_contiguous(other))
    else:
        expect(are_floats(one, other))
    return combine(one, other, dtype)


def _infer_quotient(one: Tensor, other: Union[Tensor, float]) -> Tensor:
    # integers divided by each other become floats
    expect(one.dtype.is_floating_point)
    return _infer_arithmetic(one, other)


def _infer_arithmetic_in_place(one: Tensor, other: Union[Tensor, float], *, alpha: float = 1) -> Tensor:
    expect(are_numbers(alpha) and 0 not in one.shape)
    is_float = one.dtype.is_floating_point
    if isinstance(other, Tensor):
        expect(other.dtype == one.dtype or (is_float and other.dtype.is_floating_point))
        expect(fits(other.shape, one.shape))
    else:
        expect(type(other) is int and one.dtype in _COUNTS or type(other) in (int, float) and is_float)
    return one


def _infer_quotient_in_place(one: Tensor, other: Union[Tensor, float]) -> Tensor:
    expect(one.dtype.is_floating_point)
    return _infer_arithmetic_in_place(one, other)


def _infer_comparison(one: Tensor, other: Union[Tensor, float]) -> Tensor:
    return _infer_arithmetic(one, other, dtype=torch.bool)


def _infer_copy_in_place(target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    expect(fits(source.shape, target.shape))
    return target


def _infer_dropout(tensor: Tensor, p: float, train: bool) -> Tensor:
    expect(0 <= p <= 1 and isinstance(train, bool) and are_floats(tensor))
    if not (train and p > 0) and _KEPT_BY_DROPOUT[train]:
        return tensor
    # a product with the mask, which is laid out as the tensor is
    expect(is_in_order(tensor) or is_turned(tensor) or (train and 0 < p < 1))
    return _infer_same(tensor)


def _infer_softmax(tensor: Tensor, dim: int, dtype: Optional[torch.dtype] = None) -> Tensor:
    expect(dtype is None)
    return _infer_flipped(tensor, [dim])


# -- products, sums, choices ------------------------------------------------------------------------------------------


def _infer_matmul(one: Tensor, other: Tensor) -> Tensor:
    expect(are_plain(one, other) and min(one.dim(), other.dim()) >= 2 and one.shape[-1] == other.shape[-2])
    expect(other.dim() == 2 or one.shape[:-2] == other.shape[:-2])
    return new_tensor((*one.shape[:-1], other.shape[-1]), one)


def _infer_product(num_dimensions: int, one: Tensor, other: Tensor) -> Tensor:
    expect(one.dim() == other.dim() == num_dimensions)
    return _infer_matmul(one, other)


def _infer_sum(tensor: Tensor) -> Tensor:
    expect(are_plain(tensor))
    return new_tensor((), tensor)


def _infer_sum_over(tensor: Tensor, dims: Optional[Sequence[int]], keepdim: bool = False) -> Tensor:
    # no dimensions at all, None or an empty list, mean all of them
    dims = dims or ()
    expect(bool(dims) and are_floats(tensor))
    expect(all(-tensor.dim() <= dim < tensor.dim() for dim in dims))
    gone = {dim % tensor.dim() for dim in dims}
    sizes = ((1 if dim in gone else size, dim in gone) for dim, size in enumerate(tensor.shape))
    return new_tensor([size for size, is_gone in sizes if keepdim or not is_gone], tensor)


def _infer_cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    first = tensors[0]
    # images and volumes may keep their channels innermost; all else is joined in the usual order
    layout = is_contiguous if first.dim() in (4, 5) else has_any_layout
    expect(are_plain(*tensors, layout=layout) and -first.dim() <= dim < first.dim())
    axis = dim % first.dim()
    rests = {(*tensor.shape[:axis], *tensor.shape[axis + 1 :]) for tensor in tensors}
    expect(len(rests) == 1 and all(tensor.dim() == first.dim() for tensor in tensors))
    return new_tensor((*first.shape[:axis], sum(t.shape[axis] for t in tensors), *first.shape[axis + 1 :]), first)


def _infer_stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    first = tensors[0]
    expect(are_plain(*tensors) and len({tensor.shape for tensor in tensors}) == 1)
    expect(-first.dim() - 1 <= dim <= first.dim())
    axis = dim % (first.dim() + 1)
    return new_tensor((*first.shape[:axis], len(tensors), *first.shape[axis:]), first)


def _infer_choice(condition: Tensor, one: Tensor, other: Tensor) -> Tensor:
    expect(all(map(is_contiguous, (condition, one, other))) and condition.dtype == torch.bool)
    expect(condition.shape == one.shape == other.shape and one.dtype == other.dtype)
    return new_tensor(one.shape, one)


def _infer_gathered(tensor: Tensor, _dim: int, index: Tensor) -> Tensor:
    expect(are_plain(tensor) and is_contiguous(index) and index.dtype == torch.int64 and index.dim() == tensor.dim())
    return new_tensor(index.shape, tensor)


def _infer_indexed(tensor: Tensor, indices: Sequence[Any]) -> Tensor:
    expect(are_plain(tensor) and len(indices) == 1 and isinstance(indices[0], Tensor))
    expect(indices[0].dtype in _COUNTS and is_contiguous(indices[0]) and tensor.dim() >= 1)
    return new_tensor((*indices[0].shape, *tensor.shape[1:]), tensor)


def _infer_flipped(tensor: Tensor, dims: Sequence[int]) -> Tensor:
    expect(are_plain(tensor) and all(-tensor.dim() <= dim < tensor.dim() for dim in dims))
    return new_tensor(tensor.shape, tensor)


def _list_overloads(names: str, overload: str = "default") -> List[Any]:
    return [getattr(getattr(aten, name), overload) for name in names.split()]


# Operators that torch's C++ side does for tensors without values just as for all others, and as quickly as a rule.
_DONE_BY_TORCH = [
    *_list_overloads(
        "alias broadcast_tensors chunk detach expand expand_as narrow numpy_T permute reshape reshape_as "
        "split_with_sizes squeeze swapaxes t unsqueeze view view_as"
    ),
    *_list_overloads("movedim select transpose unbind unflatten", "int"),
    *_list_overloads("squeeze", "dim"),
    *_list_overloads("squeeze", "dims"),
    *_list_overloads("slice split", "Tensor"),
    *_list_overloads("clone contiguous relu_ zero_"),
    aten.flatten.using_ints,
    aten.split.sizes,
    aten.to.dtype,
]

_UNARY = _list_overloads(
    "abs clamp clamp_max clamp_min cos elu erf exp hardsigmoid hardswish hardtanh leaky_relu log log_sigmoid mish "
    "neg reciprocal relu relu6 rsqrt selu sigmoid sign silu sin softplus sqrt square tanh"
)

_RULES: Dict[Any, Callable[..., Any]] = {
    **{operator: operator for operator in _DONE_BY_TORCH},
    **dict.fromkeys(_UNARY, _infer_same),
    **dict.fromkeys(_list_overloads("elu_ hardtanh_ leaky_relu_ sigmoid_ silu_ tanh_"), _infer_same_in_place),
    **dict.fromkeys(_list_overloads("add mul sub", "Tensor"), _infer_arithmetic),
    **dict.fromkeys(_list_overloads("add mul rsub sub", "Scalar"), _infer_arithmetic),
    **dict.fromkeys(_list_overloads("add_ mul_ sub_", "Tensor"), _infer_arithmetic_in_place),
    aten.div_.Tensor: _infer_quotient_in_place,
    aten.div.Tensor: _infer_quotient,
    aten.div.Scalar: _infer_quotient,
    **dict.fromkeys(_list_overloads("eq ge gt le lt ne", "Tensor"), _infer_comparison),
    **dict.fromkeys(_list_overloads("eq ge gt le lt ne", "Scalar"), _infer_comparison),
    **dict.fromkeys(_list_overloads("log_softmax softmax", "int"), _infer_softmax),
    **dict.fromkeys(_list_overloads("mean sum"), _infer_sum),
    aten.bmm.default: partial(_infer_product, 3),
    aten.cat.default: _infer_cat,
    aten.copy_.default: _infer_copy_in_place,
    aten.dropout.default: _infer_dropout,
    aten.flip.default: _infer_flipped,
    aten.gather.default: _infer_gathered,
    aten.gelu.default: _infer_gelu,
    aten.index.Tensor: _infer_indexed,
    aten.matmul.default: _infer_matmul,
    aten.mean.dim: _infer_sum_over,
    aten.mm.default: partial(_infer_product, 2),
    aten.stack.default: _infer_stack,
    aten.pow.Tensor_Scalar: _infer_same,
    aten.sum.dim_IntList: _infer_sum_over,
    aten.where.self: _infer_choice,
    **FACTORIES,
    **LAYERS,
    **LOSSES,
}
