"""Operators of a backend's own library whose meaning on the device is not what their CPU kernel does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, Optional

from ..torch_insides.operators import OpOverload

__all__ = ["DeviceOperator", "define_device_operator", "device_operator"]


@dataclass(frozen=True)
class DeviceOperator:
    """How the device treats an operator: what its results look like, what runs, or what is recorded in its place.

    `shape` gets the operator's arguments with tensors that have no values and returns such tensors; it raises what a
    device's compiler would. `run` gets the arguments with their values at each execution. Without them the operator's
    own kernel serves. `record(recorder, *args)` replaces both: it writes into the graph itself what the operator
    stands for (the start of a loop, a change of scope) and returns what the caller of the operator gets. `is_pure`
    says that `run` does nothing but compute with torch's operators. `rule` is a quicker `shape` for usual arguments: it
    gets them with torch's meta tensors, and returns such tensors or raises `UnknownShape`. `choose` gets the
    arguments as the graph has them and names the function of the first one that does what `run` does.
    """

    shape: Optional[Callable[..., Any]] = None
    run: Optional[Callable[..., Any]] = None
    record: Optional[Callable[..., Any]] = None
    is_pure: bool = False
    rule: Optional[Callable[..., Any]] = None
    choose: Optional[Callable[..., Callable[..., Any]]] = None


# For the whole process, as torch's own libraries of operators are.
_OPERATORS: Dict[Callable[..., Any], DeviceOperator] = {}


def define_device_operator(operator: OpOverload, **meaning: Any) -> None:
    """Say what `operator` means on the device, by the fields of `DeviceOperator`; a later definition counts."""
    _OPERATORS[operator] = DeviceOperator(**meaning)


def device_operator(operator: Callable[..., Any]) -> Optional[DeviceOperator]:
    """Return what `operator` means on the device, or None where its kernels say it all."""
    return _OPERATORS.get(operator)
