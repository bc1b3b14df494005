"""Tensors without values, and what operators make of them: by rules of our own where those know, else by torch's."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from importlib import import_module
from typing import Any, Callable, ContextManager, Dict, Optional, Sequence

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from ..support.compiler_loading import is_compiler_loaded
from .plain_shapes import UnknownShape
from .shape_rules import rule_for

__all__ = ["UNKNOWN", "ShapeMode", "in_order_of"]

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
        # what making a tensor reads; all else is filled in by `_make_ready`
        self.in_kernel_invocation = False
        self.allow_meta = False
        self._allow_unsafe_data_ptr_access = True
        self._is_ready = False

    def __enter__(self) -> Any:
        self._make_ready()
        return super().__enter__()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or self.__dict__.get("_is_ready", True):
            raise AttributeError(f"`{type(self).__name__}` has no attribute `{name}`")
        self._make_ready()
        return getattr(self, name)

    def _make_ready(self) -> None:
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
        with torch._C._DisablePythonDispatcher():
            if strides is None:
                return self.make_face(torch.empty(tuple(shape), dtype=dtype, device="meta"))
            return self.make_face(torch.empty_strided(tuple(shape), tuple(strides), dtype=dtype, device="meta"))

    def result_of(self, operator: Any, args: Sequence[Any], kwargs: Dict[str, Any]) -> Any:
        """Return what `operator` makes of tensors of this mode, or `UNKNOWN` where only torch's own rules can tell.

        Views share the memory of what they show, and an operator that hands back an argument hands back that object.
        """
        rule = rule_for(operator)
        if rule is None:
            return UNKNOWN
        faces: Dict[int, torch.Tensor] = {}
        try:
            plain_args = [self._find_plain(value, faces) for value in args]
            plain_kwargs = {name: self._find_plain(value, faces) for name, value in kwargs.items()}
            with torch._C._DisablePythonDispatcher():
                return self._find_faces(rule(*plain_args, **plain_kwargs), faces)
        except (UnknownShape, AttributeError, TypeError, ValueError, RuntimeError, IndexError):
            return UNKNOWN  # torch says what is wrong, if anything is: `torch.add(2.5, x)` has a number for a tensor

    def _find_plain(self, value: Any, faces: Dict[int, torch.Tensor]) -> Any:
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
    with torch._C._DisablePythonDispatcher():
        return tensor.fake_mode.make_face(plain.as_strided(plain.shape, tuple(strides)))


def _read_plain(face: FakeTensor) -> torch.Tensor:
    """Return the meta tensor behind `face`, which operators may have given another shape since."""
    plain: Optional[torch.Tensor] = face.__dict__.get(_PLAIN)
    if plain is None or plain.shape != face.shape or plain.stride() != face.stride():
        with torch._C._DisablePythonDispatcher(), torch._C._DisableTorchDispatch():
            plain = torch.empty(0, dtype=face.dtype, device="meta")
            plain.set_(face.untyped_storage(), face.storage_offset(), face.shape, face.stride())
        face.__dict__[_PLAIN] = plain
    return plain
