"""`custom_op`: an operator of the user's own, with attributes, inside a graph."""

from __future__ import annotations

import json
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

import torch

from ...capture.device_operators import define_device_operator
from ...capture.device_tensor import IPU, DeviceTensor
from ..custom_ops import CustomOp, find_custom_op
from ..errors import compile_error
from . import op_library  # noqa: F401 - defines the operator

__all__ = ["ATTR_PREFIX", "accessAttributes", "attributes_lists", "custom_op"]

ATTR_PREFIX = "attr:"

# The attributes of all custom operators of this process, which identifiers refer to by `id`.
attributes_lists: List[Dict[str, Any]] = []

_FLOAT_MAX = torch.finfo(torch.float32).max


def custom_op(
    inputs: Union[List[torch.Tensor], Sequence[torch.Tensor]],
    name: str,
    domain: str,
    domain_version: int,
    example_outputs: Union[List[torch.Tensor], Sequence[torch.Tensor]],
    attributes: Optional[Dict[str, Any]] = None,
) -> List[torch.Tensor]:
    """Apply the operator `name` of `domain` to `inputs`; return its outputs, shaped like `example_outputs`.

    On the device the implementation runs that was registered with `custom_ops.register_custom_op`; on the CPU the
    outputs are zeros. `attributes` hold floats, ints, strings, and lists or tuples of one of these.

    Raises ValueError for other attributes, and at compilation `poptorch.Error` for floats that float32 cannot hold and
    for an operator without an implementation.

    >>> custom_op([torch.ones(2)], "Cube", "com.acme", 1, example_outputs=[torch.ones(3)])
    [tensor([0., 0., 0.])]
    """
    is_traced = any(isinstance(tensor, DeviceTensor) for tensor in (*inputs, *example_outputs))
    kept = _kept(attributes) if attributes else {}
    # a graph holds the attributes themselves, since it may outlive this process
    identifier = json.dumps(kept) if is_traced or not kept else ATTR_PREFIX + hex(id(kept))
    zeros = [_zeros(example, on_device=is_traced) for example in example_outputs]
    return list(
        torch.ops.poptorch.custom_operation(list(inputs), name, domain, domain_version, len(zeros), zeros, identifier)
    )


def accessAttributes(attribute_id_str: Optional[str]) -> Dict[str, Any]:
    """Return the attributes that a custom operator's identifier stands for: JSON text, or a dictionary of this process.

    Raises ValueError for what is no such identifier.

    >>> accessAttributes('{"alpha": 0.5}')
    {'alpha': 0.5}
    """
    if attribute_id_str is None:
        return {}
    if not isinstance(attribute_id_str, str):
        raise ValueError("Wrong type for attribute_id_str")
    if attribute_id_str.startswith("{"):
        return dict(json.loads(attribute_id_str))
    try:
        wanted = int(attribute_id_str[len(ATTR_PREFIX) :], 16)
    except ValueError:
        wanted = -1
    for attributes in attributes_lists:
        if attribute_id_str.startswith(ATTR_PREFIX) and id(attributes) == wanted:
            return attributes
    raise ValueError("Invalid attribute_id_str")


def _zeros(example: torch.Tensor, *, on_device: bool) -> torch.Tensor:
    if on_device:
        return torch.zeros(example.shape, dtype=example.dtype, device=IPU)
    return torch.zeros_like(example, requires_grad=example.requires_grad)


def _kept(attributes: Dict[str, Any]) -> Dict[str, Any]:
    """Check `attributes` and keep them in `attributes_lists`; equal ones are kept once."""
    for key, value in attributes.items():
        _check_attribute(key, value)
    for known in attributes_lists:
        if _is_same(known, attributes):
            return known
    kept = {key: list(value) if isinstance(value, (list, tuple)) else value for key, value in attributes.items()}
    attributes_lists.append(kept)
    return kept


def _check_attribute(key: Any, value: Any) -> None:
    if not isinstance(key, str):
        raise ValueError("All attribute keys must be strings.")
    _check_ascii(key)
    elements = value if isinstance(value, (list, tuple)) else [value]
    for element in elements:
        if not isinstance(element, (float, int, str)):
            raise ValueError(
                "Attribute values must be floats, ints, strings or a list/tuple of float, ints of strings."
            )
        if type(element) is not type(elements[0]):
            raise ValueError("The types in a list/tuple attribute must all be the same.")
        if isinstance(element, str):
            _check_ascii(element)


def _check_ascii(text: str) -> None:
    if not text.isascii():
        raise ValueError(f"{text} contains non-ASCII characters.")


def _is_same(known: Dict[str, Any], attributes: Dict[str, Any]) -> bool:
    """Compare values and the types of elements: 1 and 1.0 are different attributes."""
    return known.keys() == attributes.keys() and all(
        isinstance(value, (list, tuple)) == isinstance(attributes[key], (list, tuple))
        and _typed(value) == _typed(attributes[key])
        for key, value in known.items()
    )


def _typed(value: Any) -> List[Any]:
    return [(type(element), element) for element in (value if isinstance(value, (list, tuple)) else [value])]


# -- on the device -----------------------------------------------------------------------------------------------------


def _custom_operation_shape(
    _inputs: Sequence[torch.Tensor],
    name: str,
    domain: str,
    domain_version: int,
    _num_outputs: int,
    example_outputs: Sequence[torch.Tensor],
    attributes: str,
) -> List[torch.Tensor]:
    for value in accessAttributes(attributes).values():
        for element in value if isinstance(value, (list, tuple)) else [value]:
            _check_float_range(element)
    _implementation(name, domain, domain_version)
    return [torch.empty_like(example) for example in example_outputs]


def _check_float_range(value: Any) -> None:
    if isinstance(value, float) and value < -_FLOAT_MAX:
        raise compile_error(f"{value:g} is too low for a Popart float attribute.")
    if isinstance(value, float) and value > _FLOAT_MAX:
        raise compile_error(f"{value:g} is too high for a Popart float attribute.")


def _run_custom_operation(
    inputs: Sequence[torch.Tensor],
    name: str,
    domain: str,
    domain_version: int,
    _num_outputs: int,
    _example_outputs: Sequence[torch.Tensor],
    attributes: str,
) -> List[torch.Tensor]:
    return _implementation(name, domain, domain_version)(inputs, _decoded(attributes))


@lru_cache(maxsize=None)
def _decoded(attributes: str) -> Mapping[str, Any]:
    return MappingProxyType(accessAttributes(attributes))


def _implementation(name: str, domain: str, version: int) -> CustomOp:
    found = find_custom_op(name, domain, version)
    if found is None:
        raise compile_error(
            f"No implementation of the custom operator {name} (domain {domain}, version {version}) is registered: the "
            "simulator cannot run operators that were compiled for the IPU. Give it one in Python, before the model "
            "is compiled: "
            f"porting.simulator.custom_ops.register_custom_op({name!r}, {domain!r}, {version}, forward=...)"
        )
    return found


define_device_operator(
    torch.ops.poptorch.custom_operation.default, shape=_custom_operation_shape, run=_run_custom_operation
)
