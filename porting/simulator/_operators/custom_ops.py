"""Implement `custom_op`, which puts an operator of the user's own, with attributes, into a graph."""

from __future__ import annotations

import json
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

import torch

from ...capture.device_tensor import IPU, DeviceTensor
from ..custom_ops import CustomOp, find_custom_op, make_list
from ..errors import compile_error
from .op_library import define_operator

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
    kept = _keep_attributes(attributes) if attributes else {}
    # a graph holds the attributes themselves, since it may outlive this process
    identifier = json.dumps(kept) if is_traced or not kept else ATTR_PREFIX + hex(id(kept))
    examples = list(example_outputs)
    if is_traced:
        # an example is often a tensor of the host, which no graph takes
        examples = [torch.zeros(example.shape, dtype=example.dtype, device=IPU) for example in examples]
    run = torch.ops.poptorch.custom_operation
    return list(run(list(inputs), name, domain, domain_version, len(examples), examples, identifier))


def accessAttributes(attribute_id_str: Optional[str]) -> Dict[str, Any]:
    """Return the attributes of a custom operator's identifier: JSON text, or the name of a dictionary of this process.

    Raises ValueError for another value.

    >>> accessAttributes('{"alpha": 0.5}')
    {'alpha': 0.5}
    """
    if attribute_id_str is None:
        return {}
    if not isinstance(attribute_id_str, str):
        raise ValueError("Wrong type for attribute_id_str")
    # what stands in a graph, which may have been saved by another process
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


def _keep_attributes(attributes: Dict[str, Any]) -> Dict[str, Any]:
    """Check `attributes` and keep them in `attributes_lists`; equal ones are kept once."""
    for key, value in attributes.items():
        if not isinstance(key, str):
            raise ValueError("All attribute keys must be strings.")
        elements = make_list(value)
        for element in elements:
            if not isinstance(element, (float, int, str)):
                raise ValueError(
                    "Attribute values must be floats, ints, strings or a list/tuple of float, ints of strings."
                )
            if type(element) is not type(elements[0]):
                raise ValueError("The types in a list/tuple attribute must all be the same.")
        for text in (key, *elements):
            if isinstance(text, str) and not text.isascii():
                raise ValueError(f"{text} contains non-ASCII characters.")
    kept = {key: list(value) if isinstance(value, (list, tuple)) else value for key, value in attributes.items()}
    for known in attributes_lists:
        # 1 and 1.0 are equal, but different attributes
        if known == kept and all(_list_types(known[key]) == _list_types(value) for key, value in kept.items()):
            return known
    attributes_lists.append(kept)
    return kept


def _list_types(value: object) -> List[type]:
    return [type(element) for element in make_list(value)]


def _make_zeros(inputs: Sequence[torch.Tensor], *rest: Any) -> List[torch.Tensor]:
    """Run any operator on the CPU; the argument before the last holds the example outputs."""
    return [torch.zeros_like(example, requires_grad=example.requires_grad) for example in rest[-2]]


# -- on the device -----------------------------------------------------------------------------------------------------


def _check_operation(
    _inputs: Sequence[torch.Tensor], name: str, domain: str, version: int, _num_outputs: int, *rest: Any
) -> List[torch.Tensor]:
    """Refuse as PopART's compiler does, and without an implementation; return the outputs' form."""
    example_outputs, attributes = rest
    for value in accessAttributes(attributes).values():
        for element in make_list(value):
            if isinstance(element, float) and abs(element) > _FLOAT_MAX:
                extreme = "low" if element < 0 else "high"
                raise compile_error(f"{element:g} is too {extreme} for a Popart float attribute.")
    _find_implementation(name, domain, version)
    return [torch.empty_like(example) for example in example_outputs]


def _run_operation(
    inputs: Sequence[torch.Tensor], name: str, domain: str, version: int, _num_outputs: int, *rest: Any
) -> List[torch.Tensor]:
    _example_outputs, attributes = rest
    # looked up at each run: an implementation that is registered again holds for compiled models too
    return _find_implementation(name, domain, version)(inputs, _decode_attributes(attributes))


# read-only, because all calls of an operator get the same object
@lru_cache(maxsize=None)
def _decode_attributes(attributes: str) -> Mapping[str, Any]:
    return MappingProxyType(accessAttributes(attributes))


def _find_implementation(name: str, domain: str, version: int) -> CustomOp:
    found = find_custom_op(name, domain, version)
    if found is None:
        raise compile_error(
            f"No implementation of the custom operator {name} (domain {domain}, version {version}) is registered: the "
            "simulator cannot run operators that were compiled for the IPU. Give it one in Python, before the model "
            "is compiled: "
            f"porting.simulator.custom_ops.register_custom_op({name!r}, {domain!r}, {version}, forward=...)"
        )
    return found


define_operator(
    "custom_operation(Tensor[] inputs, str name, str domain, int domain_version, int num_outputs, "
    "Tensor[] example_outputs, str attributes) -> Tensor[]",
    _make_zeros,
    is_random=True,
    shape=_check_operation,
    run=_run_operation,
)
