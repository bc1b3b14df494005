"""`torch.ops.poptorch`: the schemas of PopTorch's operator library, and what they do on the CPU."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence, Tuple

import torch

from ...capture.device_operators import define_device_operator
from ...capture.plain_shapes import UNKNOWN, are_plain, new_tensor
from .point_sets import farthest_points, nearest_rows

__all__ = ["LIBRARY", "REDUCTIONS"]

REDUCTIONS: Dict[str, int] = {"sum": 0, "mean": 1, "none": 2}


def _library() -> torch.library.Library:
    """Return the library of this process; it outlives the modules of this package, which may be imported anew."""
    namespace: Any = torch.ops.poptorch
    if not hasattr(namespace, "_porting_library"):
        namespace._porting_library = torch.library.Library("poptorch", "FRAGMENT")
    found: torch.library.Library = namespace._porting_library
    return found


LIBRARY = _library()


def _first(x: Any, *_settings: Any, **_named_settings: Any) -> Any:
    return x


def _copies_of_list(tensors: Sequence[torch.Tensor], *_settings: Any) -> List[torch.Tensor]:
    return list(tensors)


def _nothing(*_args: Any) -> None:
    pass


def _identity_loss(x: torch.Tensor, reduction: int) -> torch.Tensor:
    return _choose_reduction(x, reduction)(x)


def _choose_reduction(_x: Any, reduction: int) -> Callable[[torch.Tensor], torch.Tensor]:
    named: Dict[int, Any] = {REDUCTIONS["sum"]: torch.sum, REDUCTIONS["mean"]: torch.mean}
    found: Callable[[torch.Tensor], torch.Tensor] = named.get(reduction, torch.clone)
    return found


def _internal_cast(x: torch.Tensor, dtype: str) -> torch.Tensor:
    types = {"FLOAT": torch.float32, "FLOAT16": torch.float16}
    if dtype not in types:
        raise RuntimeError(f"internal_cast knows the types {', '.join(types)}, not {dtype}")
    return x.to(types[dtype])


def _dynamic_slice(x: torch.Tensor, dim: int, start: torch.Tensor, size: int, step: int) -> torch.Tensor:
    first = int(start)
    return torch.ops.aten.slice(x, dim, first, first + size, step)


def _dynamic_update(x: torch.Tensor, src: torch.Tensor, dim: int, start: torch.Tensor, size: int) -> torch.Tensor:
    """Write `src` into a copy of `x`; what does not fit the slice is left out, since the CPU refuses nothing here."""
    result, first = x.clone(), int(start)
    window = torch.ops.aten.slice(result, dim, first, first + size, 1)
    if window.dim() == src.dim() and all(new in (1, old) for new, old in zip(src.shape, window.shape)):
        window.copy_(src)
    return result


def _custom_operation(
    _inputs: Sequence[torch.Tensor],
    _name: str,
    _domain: str,
    _version: int,
    _num_outputs: int,
    example_outputs: Sequence[torch.Tensor],
    _attributes: str,
) -> List[torch.Tensor]:
    return [torch.zeros_like(example, requires_grad=example.requires_grad) for example in example_outputs]


def _ctc_beam_search_decoder(
    probs: torch.Tensor, _lengths: torch.Tensor, _blank: int = 0, _beam_width: int = 100, top_paths: int = 1
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    num_steps, batch = probs.shape[0], probs.shape[1]
    return (
        probs.new_zeros(batch, top_paths),
        probs.new_zeros(batch, top_paths, dtype=torch.int32),
        probs.new_zeros(batch, top_paths, num_steps, dtype=torch.int32),
    )


def _end_for_loop(outputs: Sequence[torch.Tensor], _inputs: Sequence[torch.Tensor], _count: int) -> List[torch.Tensor]:
    return list(outputs)


_PRINT_ARGUMENTS = (
    "str title, bool print_gradient, int summarise_threshold, int edge_items, int max_line_width, int digits, "
    "int float_format, str separator, str open_bracket, str close_bracket"
)
_MULTI_CONV_ARGUMENTS = (
    "float[]? available_memory_proportions=None, int[]? partials_types=None, int? plan_type=None, "
    "int? per_conv_reserved_tiles=None, float? cycle_back_off=None, int[]? enable_conv_dithering=None"
)

# Schema and CPU kernel of each operator; the markers of scopes have an effect only while a model is traced.
_OPERATORS: Tuple[Tuple[str, Callable[..., Any]], ...] = (
    ("begin_ipu_block(int stage, int phase, int ipu) -> ()", _nothing),
    ("end_ipu_block() -> ()", _nothing),
    ("start_for_loop(Tensor[] inputs) -> ()", _nothing),
    ("end_for_loop(Tensor[] outputs, Tensor[] inputs, int count) -> Tensor[]", _end_for_loop),
    ("start_if_block(Tensor condition) -> ()", _nothing),
    ("start_else_block(Tensor[] outputs) -> ()", _nothing),
    ("end_if_block(Tensor[] outputs, Tensor condition) -> Tensor[]", _copies_of_list),
    ("optimizer_group(int group, Tensor[] inputs) -> ()", _nothing),
    ("begin_multi_conv() -> ()", _nothing),
    (f"end_multi_conv({_MULTI_CONV_ARGUMENTS}) -> ()", _nothing),
    ("push_name_scope(str name) -> ()", _nothing),
    ("pop_name_scope() -> ()", _nothing),
    ("set_attribute(str attribute, str key, str value) -> ()", _nothing),
    ("clear_attribute(str attribute, str key) -> ()", _nothing),
    (f"ipu_print_tensor(Tensor x, {_PRINT_ARGUMENTS}) -> Tensor", _first),
    ("nop(Tensor x) -> Tensor", _first),
    ("set_matmul_serialization(Tensor x, str mode, int factor, bool keep_precision) -> Tensor", _first),
    ("set_overlap_for_input(Tensor x, str mode) -> Tensor", _first),
    ("set_overlap_for_output(Tensor x, str mode) -> Tensor", _first),
    ("recomputation_checkpoint(Tensor x) -> Tensor", _first),
    ("set_available_memory(Tensor x, float proportion) -> Tensor", _first),
    (
        "custom_operation(Tensor[] inputs, str name, str domain, int domain_version, int num_outputs, "
        "Tensor[] example_outputs, str attributes) -> Tensor[]",
        _custom_operation,
    ),
    (
        "ctc_beam_search_decoder(Tensor probs, Tensor lengths, int blank=0, int beam_width=100, int top_paths=1)"
        " -> (Tensor, Tensor, Tensor)",
        _ctc_beam_search_decoder,
    ),
    ("dynamic_slice(Tensor x, int dim, Tensor start, int size, int step) -> Tensor", _dynamic_slice),
    ("dynamic_update(Tensor x, Tensor src, int dim, Tensor start, int size) -> Tensor", _dynamic_update),
    ("identity_loss(Tensor x, int reduction) -> Tensor", _identity_loss),
    ("internal_cast(Tensor x, str dtype) -> Tensor", _internal_cast),
    ("fps(Tensor src, int[] ptr, float ratio, bool random_start) -> Tensor", farthest_points),
    ("nearest(Tensor x, Tensor y, Tensor? batch_x=None, Tensor? batch_y=None) -> Tensor", nearest_rows),
    ("nearest_batch_list(Tensor x, Tensor y, int[] batch_x, int[] batch_y) -> Tensor", nearest_rows),
    ("call_cpu_op(Tensor[] inputs, str id) -> ()", _nothing),
    ("end_cpu_op(Tensor[] outputs) -> Tensor[]", _copies_of_list),
)

# Operators that may draw random numbers on the device.
_RANDOM = frozenset(["custom_operation", "fps"])

# Operators that only compute: a graph calls their kernels itself.
_PURE = frozenset(
    "identity_loss internal_cast nop recomputation_checkpoint set_available_memory set_matmul_serialization "
    "set_overlap_for_input set_overlap_for_output".split()
)


def _identity_loss_rule(x: torch.Tensor, reduction: int) -> Any:
    if not are_plain(x):
        return UNKNOWN
    return new_tensor(x.shape if reduction == REDUCTIONS["none"] else (), x)


def _rule(name: str, kernel: Callable[..., Any]) -> Any:
    """Return what the shapes of an operator's results follow from; those that hand on their argument are their own."""
    return _identity_loss_rule if name == "identity_loss" else kernel if kernel is _first else None


def _define() -> None:
    """Define what is missing: the vendor's package has the same library, and may be in this process too."""
    for schema, kernel in _OPERATORS:
        name = schema.partition("(")[0]
        if not hasattr(torch.ops.poptorch, name):
            LIBRARY.define(schema, tags=(torch.Tag.nondeterministic_seeded,) if name in _RANDOM else ())
        # without this kernel the tensors of a capture, which have no values, could not go through an operator
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"poptorch::{name}", "CompositeImplicitAutograd"):
            LIBRARY.impl(name, kernel, "CompositeImplicitAutograd")
        if name in _PURE:
            define_device_operator(
                getattr(torch.ops.poptorch, name).default,
                run=kernel,
                is_pure=True,
                rule=_rule(name, kernel),
                choose=_choose_reduction if name == "identity_loss" else None,
            )


_define()
