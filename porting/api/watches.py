"""Notice in later calls what a compiled step does not follow: attributes, frozen parameters, hooks, new weights."""

from __future__ import annotations

import functools
import itertools
import math
import weakref
from contextlib import contextmanager
from types import FrameType
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

import torch
from torch import nn

from ..diagnostics import Finding, caller_place, list_names
from ..host_tensors import host_tensors
from ..structure import are_equal, flatten_tensors
from ..torch_insides.modes import DisableTorchFunctionSubclass
from ..torch_insides.modules import (
    find_parallel_module,
    read_backward_hooks,
    read_backward_pre_hooks,
    read_forward_hooks,
    read_forward_pre_hooks,
)
from ..torch_insides.tensors import GRADIENT_HOOKS, TENSOR_BASE, read_version
from .moves import make_wrapper_error
from .port import Port, PortFindings, name_modules, say_it_is_compiled_in
from .run_report import ExecutorRecord

__all__ = [
    "AttributeReads",
    "AttributeWatch",
    "ChangedAttribute",
    "HostWrites",
    "LateChanges",
    "count_call",
    "note_loss",
    "note_outputs",
    "note_reads",
    "refuse_parallel_call",
]

# These two ask a module around the port for nothing; while they run they are seen by this.
_DATA_PARALLEL = nn.DataParallel.forward.__code__

_PLAIN = (bool, int, float, complex, str, type(None))
_MOST_ITEMS = 16
# modules looked at in one call: each takes 0.2 to 0.5 microseconds
_MODULES_A_CALL = 6
# read without the attribute hooks that a backend puts on the tensors it owns: those would fetch the weights each time
_requires_grad = TENSOR_BASE.requires_grad.__get__
# a look at one parameter takes 0.3 microseconds
_PARAMETERS_PER_CALL = 8

AttributeReads = Dict[int, Dict[str, Any]]
"""The plain attributes that were read, with their first values, by the identity of their module."""


class ChangedAttribute(NamedTuple):
    """An attribute that is not what was compiled in any more."""

    name: str
    before: Any
    after: Any


_AttributeShare = Tuple[List[Tuple[Callable[[str], Any], Tuple[str, ...]]], List[Tuple[Any, ...]]]


@contextmanager
def note_reads(modules: Sequence[Tuple[str, nn.Module]]) -> Iterator[AttributeReads]:
    """Note which plain attributes of `modules` are read while the context lasts, be it of the instance or its class."""
    noted: AttributeReads = {id(module): {} for _prefix, module in modules}
    of_torch = _list_names_of_torch()
    read: Callable[[Any, str], Any] = nn.Module.__getattribute__

    def note(module: nn.Module, name: str) -> Any:
        value = read(module, name)
        if name not in of_torch and _is_plain(value):
            names = noted.get(id(module))
            if names is not None:
                names.setdefault(name, value)
        return value

    nn.Module.__getattribute__ = note  # type: ignore[assignment]
    try:
        yield noted
    finally:
        del nn.Module.__getattribute__


@functools.lru_cache(maxsize=None)
def _list_names_of_torch() -> FrozenSet[str]:
    """List the attributes that every module has."""
    return frozenset([*dir(nn.Module), *vars(nn.Module())])


class AttributeWatch:
    """Attributes with the values that were compiled in; `look` compares some of them, share by share.

    What `forward` itself changes is not among them: a compiled step does not run it.

    >>> module = nn.Dropout(0.1)
    >>> watch = AttributeWatch([("drop.", module)], {id(module): {"p": 0.1}}, allowed=())
    >>> module.p = 0.5
    >>> watch.look()
    [ChangedAttribute(name='drop.p', before=0.1, after=0.5)]
    >>> watch.look()
    []
    """

    def __init__(
        self, modules: Sequence[Tuple[str, nn.Module]], reads: AttributeReads, *, allowed: Sequence[str]
    ) -> None:
        """Watch what `modules` had read of them, except for `allowed` names."""
        self._entries: List[_Entry] = []
        self._next = 0
        for prefix, module in modules:
            read = reads.get(id(module), {})
            names = [name for name in read if prefix + name not in allowed and _is_unchanged(module, name, read[name])]
            if names:
                self._entries.append(_Entry.of(prefix, vars(module).get, {name: read[name] for name in names}))
        self._shares = self._make_shares()

    def look(self) -> List[ChangedAttribute]:
        """Return what has changed of the attributes of the next share; each is returned once."""
        share = self._next
        if share >= len(self._shares):
            return []
        self._next = (share + 1) % len(self._shares)
        getters, values = self._shares[share]
        try:
            if [tuple(map(get, names)) for get, names in getters] == values:
                return []
        except (RuntimeError, TypeError, ValueError):
            pass  # a tensor in the place of a number, which `_take_changes` finds
        found: List[ChangedAttribute] = []
        for number in range(share * _MODULES_A_CALL, min((share + 1) * _MODULES_A_CALL, len(self._entries))):
            found += self._take_changes(number)
        self._shares = self._make_shares()
        return found

    def _make_shares(self) -> List[_AttributeShare]:
        parts = [
            self._entries[first : first + _MODULES_A_CALL] for first in range(0, len(self._entries), _MODULES_A_CALL)
        ]
        return [([(entry.get, entry.names) for entry in part], [entry.values for entry in part]) for part in parts]

    def _take_changes(self, number: int) -> List[ChangedAttribute]:
        """Return the changed attributes of an entry, and watch only the others from now on."""
        prefix, get, names, values, compiled = self._entries[number]
        changed = [name for name, value in zip(names, values) if not are_equal(get(name), value)]
        left = {name: compiled[name] for name in names if name not in changed}
        self._entries[number] = _Entry.of(prefix, get, left)
        return [ChangedAttribute(prefix + name, compiled[name], get(name)) for name in changed]


class _Entry(NamedTuple):
    """The watched attributes of one module: `values` are its own, `compiled` those that `forward` read."""

    prefix: str
    get: Callable[[str], Any]
    names: Tuple[str, ...]
    values: Tuple[Any, ...]
    compiled: Dict[str, Any]

    @classmethod
    def of(cls, prefix: str, get: Callable[[str], Any], compiled: Dict[str, Any]) -> _Entry:
        """Take the values as they are now; None for an attribute that only the class has."""
        return cls(prefix, get, tuple(compiled), tuple(map(get, compiled)), compiled)


def _is_plain(value: Any) -> bool:
    if isinstance(value, _PLAIN):
        return True
    return type(value) is tuple and len(value) <= _MOST_ITEMS and all(isinstance(item, _PLAIN) for item in value)


def _is_unchanged(module: nn.Module, name: str, value: Any) -> bool:
    """Tell whether an attribute that was read is a plain one, no property, and `forward` has left it alone."""
    if name in vars(module):
        return are_equal(vars(module)[name], value)
    found = next((vars(kind)[name] for kind in type(module).__mro__ if name in vars(kind)), _PLAIN)
    return _is_plain(found) and are_equal(found, value)


# -- parameters and hooks ----------------------------------------------------------------------------------------------


class _Share(NamedTuple):
    """What one call looks at: every so many-th parameter and module, and what was seen there last."""

    tensors: Tuple[torch.Tensor, ...]
    trained: List[bool]
    hookless: Tuple[torch.Tensor, ...]
    hooks: Tuple[Any, ...]


class LateChanges:
    """Looks at the parameters and modules of a compiled training step share by share, and says each change once (D005).

    A call looks at eight parameters and their share of the modules, so that it costs microseconds however large the
    model is; small models are seen as a whole in every call.
    """

    def __init__(self, port: Port) -> None:
        """Take everything as it is now for what was compiled."""
        hosts = [host for host in host_tensors(port.wrapped) if host.kind == "parameter"]
        self._parameters = [(host.name, host.tensor, _is_trained(host.tensor)) for host in hosts]
        self._modules = [
            (
                name,
                _list_empty(read_backward_hooks(module), read_backward_pre_hooks(module)),
                _list_empty(read_forward_hooks(module), read_forward_pre_hooks(module)),
            )
            for name, module in name_modules(port)
            if not isinstance(module, torch.jit.ScriptModule)
        ]
        self._said: Set[Tuple[str, str]] = set()
        self._shares = itertools.cycle(self._make_shares())

    def look(self) -> None:
        """Look at the next share, and at everything if something is new there."""
        tensors, trained, hookless, hooks = next(self._shares)
        with DisableTorchFunctionSubclass():
            is_new = [*map(_requires_grad, tensors)] != trained
            for hooks_of in GRADIENT_HOOKS:
                is_new = is_new or any(map(hooks_of, hookless))
        if is_new or any(hooks):
            self.say()

    def say(self) -> None:
        """Look at everything, and say what is new."""
        found = {
            "`requires_grad` changed": [name for name, tensor, was in self._parameters if _is_trained(tensor) != was],
            "a gradient hook was added": [name for name, tensor, _was in self._parameters if _has_hooks(tensor)],
            "a backward hook was added to a module": [name for name, hooks, _forward in self._modules if any(hooks)],
            "a forward hook was added to a module": [name for name, _backward, hooks in self._modules if any(hooks)],
        }
        for what, names in found.items():
            new = [name for name in names if (what, name) not in self._said]
            if new:
                say_it_is_compiled_in(f"{what} after the step was compiled ({list_names(new, most=1)})")
        # what is again as it was compiled may change again
        self._said = {(what, name) for what, names in found.items() for name in names}
        self._shares = itertools.cycle(self._make_shares())

    def _make_shares(self) -> List[_Share]:
        tensors = [tensor for _name, tensor, _was in self._parameters]
        hooks = [each for _name, backward, forward in self._modules for each in (*backward, *forward) if not each]
        count = max(1, -(-len(tensors) // _PARAMETERS_PER_CALL))
        return [
            _Share(
                tuple(tensors[first::count]),
                [_is_trained(tensor) for tensor in tensors[first::count]],
                tuple(tensor for tensor in tensors[first::count] if not _has_hooks(tensor)),
                tuple(hooks[first::count]),
            )
            for first in range(count)
        ]


def _list_empty(*hooks: Any) -> List[Any]:
    """Return the registries without a hook: those that were there when `forward` was traced are in the step."""
    return [registry for registry in hooks if not registry]


def _is_trained(tensor: torch.Tensor) -> bool:
    with DisableTorchFunctionSubclass():
        return bool(_requires_grad(tensor))


def _has_hooks(tensor: torch.Tensor) -> bool:
    with DisableTorchFunctionSubclass():
        return any(hooks_of(tensor) for hooks_of in GRADIENT_HOOKS)


# -- writes to weights -------------------------------------------------------------------------------------------------


class HostWrites:
    """Notices that somebody wrote to a model's weights on the host: a loaded state, an `init`, a pruning mask.

    torch's own version counters tell.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        """Start to watch `tensors`; those made in inference mode cannot be watched."""
        self._tensors: List[torch.Tensor] = [tensor for tensor in tensors if not tensor.is_inference()]
        self._seen: Optional[int] = None

    def notice(self) -> bool:
        """Take the tensors as they are for seen; tell whether something was written since the last time."""
        before = self._seen
        with DisableTorchFunctionSubclass():
            self._seen = sum(map(read_version, self._tensors))
        return before is not None and before != self._seen

    def ignore_fetches(self, executor: Any) -> None:
        """Let the weights that `executor` brings to the host count as seen.

        PopTorch fetches through the instance's attribute, so that it can be exchanged.
        """
        fetch, own, writes = type(executor).copyWeightsToHost, weakref.ref(executor), weakref.ref(self)

        def copy_weights_to_host() -> None:
            running = own()
            if running is not None:
                fetch(running)
                watching = writes()
                if watching is not None:
                    watching.notice()

        executor.copyWeightsToHost = copy_weights_to_host


# -- losses and outputs that are no numbers ----------------------------------------------------------------------------


def note_loss(loss: Any, record: ExecutorRecord, findings: PortFindings, *, steps_per_call: int) -> None:
    """Warn (L008) of the first call whose loss is NaN or infinite, and keep its number in `record`.

    The loss has come to the host with the call's results, so that a look at it waits for nothing.
    """
    if record.first_call_not_finite is not None:
        return
    # a sum is finite only if each of its parts is
    value = loss.item() if loss.numel() == 1 else loss.double().sum().item()
    if not math.isfinite(value):
        call, where = record.num_calls, f"step {record.num_calls}"
        if steps_per_call > 1:
            where = f"call {call} (steps {(call - 1) * steps_per_call + 1} to {call * steps_per_call})"
        note = "the weights are lost if this step has changed them: load a checkpoint from before"
        _say_not_finite(record, findings, f"the loss is {value} in {where}", notes=(note,))


def note_outputs(outputs: Any, record: ExecutorRecord, findings: PortFindings) -> None:
    """Warn (L008) of outputs of an inference that are NaN; infinite ones may be meant, as in masks.

    Outputs are large: those of the calls 1, 2, 4, 8, ... are looked at.
    """
    calls = record.num_calls
    if record.first_call_not_finite is not None or calls & (calls - 1):
        return
    floats = (tensor for tensor in flatten_tensors(outputs) if tensor.is_floating_point())
    if any(bool(torch.isnan(tensor).any()) for tensor in floats):
        _say_not_finite(record, findings, f"an output of the {record.name} is NaN in call {calls}", notes=())


def _say_not_finite(record: ExecutorRecord, findings: PortFindings, message: str, *, notes: Tuple[str, ...]) -> None:
    record.first_call_not_finite = record.num_calls
    findings.say(
        Finding(
            "L008",
            message=message,
            place=caller_place(),
            notes=notes,
            help=(
                "`ported.find_nan(batch)` names module, operator and line where it begins, from the weights before; "
                "`PortOptions(debug_nan=True)` stops the training there",
                "try a lower learning rate, or clip: `to_ipu(..., max_grad_norm=1.0)`",
                "look for `log` and `sqrt` of zero, for divisions by zero, and for such values in the batch",
                "a micro-batch with no label that counts has no mean loss: let the sizes divide the dataset",
            ),
        )
    )


# -- calls -------------------------------------------------------------------------------------------------------------


def refuse_parallel_call(frame: FrameType) -> None:
    """Raise DeviceError D003 if `frame`, which calls a port, belongs to a wrapper for several devices."""
    if frame.f_code is _DATA_PARALLEL or (frame.f_back is not None and frame.f_back.f_code is _DATA_PARALLEL):
        raise make_wrapper_error("DataParallel")
    if find_parallel_module() is not None:
        raise make_wrapper_error("DistributedDataParallel")


def count_call(
    record: ExecutorRecord, seconds: float, *, sent: int, returned: int, times: Optional[Sequence[float]]
) -> None:
    """Count a call that took `seconds` and moved so many bytes.

    `times` are those at which it began to send, had sent, had run and had returned, where the device tells.
    """
    record.num_calls += 1
    record.num_samples += record.samples_per_call or 0
    record.call_seconds += seconds
    record.bytes_to_device += sent
    record.bytes_to_host += returned
    if times is not None:
        entered, started, ended, left = times
        record.host_to_device_seconds = (record.host_to_device_seconds or 0.0) + started - entered
        record.run_seconds = (record.run_seconds or 0.0) + ended - started
        record.device_to_host_seconds = (record.device_to_host_seconds or 0.0) + left - ended
