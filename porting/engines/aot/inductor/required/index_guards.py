"""An index out of bounds in compiled C++ code is an error of the run, not the end of the process.

Inductor writes a check before each access with an index from data, such as a label, and the check throws. In a loop of
several threads nobody can catch that, and the process is aborted. Here the check notes the fault, the index is moved
into its bounds so that the access is harmless, and the kernel throws when its threads are done. Loads do not use the
array of a moved index that a store, which is written behind them, was the first to need.

Without this a program may end its process, so that a torch without the functions, or with others in them, is refused.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import Any, Callable, Iterator

import torch

from .....torch_insides.exchanged import exchanged
from .....torch_insides.inductor import (
    GUARDS,
    CppKernel,
    CppVecKernel,
    CSEProxy,
    KernelGroup,
    ValueRanges,
    virtualized,
)
from ..written_code import add_to_header, require_once

__all__ = ["guarded_indices"]

_LOSS = "an index out of bounds would end the process"

# The macro stands for the check that Inductor writes; the note is an atomic because any thread of a kernel may find a
# fault. Which of several faults is told does not matter.
_CHECK = "PORTING_CHECK_INDEX"
_NOTE = "porting_index_fault"

# what Inductor itself writes at the start and at the end of each kernel, outside of its parallel loops
_START = "std::atomic<int> inductor_cpu_integer_div_error{0};"
_END = "inductor_cpu_throw_if_integer_div_error(inductor_cpu_integer_div_error);"

_MACRO = f"""
#ifndef {_CHECK}
#define {_CHECK}(condition, message) \\
  do {{ if (C10_UNLIKELY(!(condition))) {_NOTE}.store(message, std::memory_order_relaxed); }} while (0)
#endif
"""
_DECLARED = f"std::atomic<const char*> {_NOTE}{{nullptr}};"
_THROWN = f"if (const char* fault = {_NOTE}.load()) {{ throw std::runtime_error(fault); }}"


@contextmanager
def guarded_indices() -> Iterator[None]:
    """Make Inductor write guarded code while the context lasts; MissingPart for a torch without the functions."""
    GUARDS.require()
    changes = (
        # the vectorised kernel overrides the method, so that replacing it in the base class is not enough
        (CppVecKernel, "indirect_assert", _note_fault),
        (CppKernel, "indirect_assert", _note_fault),
        (CSEProxy, "indirect_indexing", _keep_within_bounds),
        (CppVecKernel, "_load_or_store_non_contiguous", _keep_arrays_of_stores_apart),
        (KernelGroup, "codegen_group", _throw_at_end),
    )
    with ExitStack() as stack:
        for owner, name, make in changes:
            stack.enter_context(exchanged(owner, name, make))
        yield


def _note_fault(original: Callable[..., str]) -> Callable[..., str]:
    def indirect_assert(self: object, var: object, lower: object, upper: object, mask: object = None) -> str:
        _function, _, arguments = original(self, var, lower, upper, mask).partition("(")
        return f"{_CHECK}({arguments}"

    return indirect_assert


def _keep_within_bounds(original: Callable[..., Any]) -> Callable[..., Any]:
    def indirect_indexing(self: Any, var: Any, size: Any, check: bool = True, wrap_neg: bool = True) -> Any:
        symbol = original(self, var, size, check, wrap_neg)
        if not check or not isinstance(self.kernel, CppKernel):
            return symbol
        index, last = self.kernel.cse.varname_map[str(symbol)], int(size) - 1
        if last < 0:
            raise RuntimeError("an index into a dimension without elements is not compiled")
        # Inductor has proven it to be inside; clamping it would only cost time.
        if index.bounds in ValueRanges(0, last):
            return symbol
        dtype: Any = index.dtype
        inside = virtualized.ops.maximum(index, virtualized.ops.constant(0, dtype))
        if last < torch.iinfo(dtype).max:
            inside = virtualized.ops.minimum(inside, virtualized.ops.constant(last, dtype))
        # `False`: the check stands before the clamping and must see the index as it came.
        return self.parent_handler.indirect_indexing(getattr(inside, "value", inside), size, False)

    return indirect_indexing


def _keep_arrays_of_stores_apart(original: Callable[..., Any]) -> Callable[..., Any]:
    def _load_or_store_non_contiguous(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("store_value") is None:
            return original(self, *args, **kwargs)
        # Inductor would let a load that comes later use what is made here, and write that load before it.
        shared, self.cse = self.cse, self.cse.scoped_copy()
        try:
            return original(self, *args, **kwargs)
        finally:
            self.cse = shared

    return _load_or_store_non_contiguous


def _throw_at_end(original: Callable[..., str]) -> Callable[..., str]:
    def codegen_group(self: object, name: object = None) -> str:
        code = original(self, name)
        if f"{_CHECK}(" not in code:
            return code
        for expected in (_START, _END):
            require_once(expected, code, loses=_LOSS)
        return (
            add_to_header(code, _MACRO, loses=_LOSS)
            .replace(_START, f"{_START}\n{_DECLARED}")
            .replace(_END, f"{_END}\n{_THROWN}")
        )

    return codegen_group
