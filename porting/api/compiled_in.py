"""Compare in each later call all that a compiled step has read or assumed of the host.

A step is traced once and goes on as it was then. What its `forward` read of Python (attributes, globals, settings), and
what the model is made of (modules, parameters, modes, hooks), may change on the host afterwards: runners ask here.
"""

from __future__ import annotations

import inspect
import itertools
import threading
import weakref
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

import torch
from torch import nn

from ..adapters.backend_protocol import CompiledStep, Executor
from ..adapters.batch_counts import BatchCounts
from ..host_tensors import (
    are_same_bytes,
    as_registered,
    has_alias,
    has_name,
    host_tensors,
    list_constants,
    list_held_buffers,
)
from ..module_attributes import NOT_THE_USERS, is_hashed_by
from ..reached_values import ReachedValue, is_plain, is_same, is_written, list_reached_values
from ..torch_insides.modes import DisableTorchFunctionSubclass
from ..torch_insides.modules import list_forward_hooks
from ..torch_insides.tensors import GRADIENT_HOOKS, read_version
from .frozen_checks import collect_last_readers, describe_change
from .model_structure import ModelStructure, StructureShare, requires_grad
from .port import Port, PortFindings, list_modules_by_prefix
from .watches import note_reads

__all__ = ["CompiledIn", "HostWrites"]

# what one call looks at; a value takes some 50 nanoseconds, a tensor a microsecond
_VALUES_A_CALL = 24
_TENSORS_A_CALL = 2

_OF_TORCH = frozenset(vars(nn.Module()))
_find_memory = torch.Tensor.data_ptr
_read_mode = itemgetter("training")

Look = Callable[[], bool]
"""Tells whether a share is as it was."""


class CompiledIn:
    """What one executable assumes; `look` compares a share of it, and warns of what has changed (C020, D005).

    A small model is compared as a whole in every call, and a large one share by share, so that a call takes
    microseconds longer. A value that has changed is told once, and a change of the model each time that it is made.
    """

    def __init__(self, port: Port, findings: PortFindings, *, trains: bool, keeps_modes: bool) -> None:
        """Assume nothing yet: `note_reads` goes around the capture of a step, and `take` follows it."""
        self._port, self._findings = port, findings
        self._modules = modules = list_modules_by_prefix(port)
        self._make_structure = partial(ModelStructure, port, findings, modules, trains=trains, keeps_modes=keeps_modes)
        # constants of a host loop's backward pass are told by the `forward` before it
        self._has_backward = keeps_modes and not trains
        self._lock = threading.Lock()
        self._shares: Iterator[List[Look]] = itertools.cycle([[]])

    @contextmanager
    def note_reads(self) -> Iterator[None]:
        """Note what the capture reads while the context lasts."""
        held = [(prefix + name, value) for prefix, module in self._modules for name, value in vars(module).items()]
        objects = [(name, value) for name, value in held if name.rpartition(".")[2] not in _OF_TORCH]
        self._before = _list_reached(self._port, self._modules, objects)
        with note_reads(self._modules) as self._reads:
            yield

    def take(self, step: Optional[CompiledStep]) -> CompiledIn:
        """Take all for compiled in that was read, and the model as it is now; `step` is what was captured, if known."""
        frozen = self._port.options.frozen
        allowed = () if isinstance(frozen, str) else frozen
        values = [] if frozen == "allow" else self._list_values()
        if step is not None and not step.graph.constants and not self._has_backward:
            # a module's own may have become a number, or a shape
            attributes = {id(vars(module)) for _prefix, module in self._modules}
            values = [e for e in values if not isinstance(e.value, torch.Tensor) or _find_owner(e) in attributes]
        layers = {id(vars(module)) for _prefix, module in self._modules if type(module).__module__.startswith("torch.")}
        last = set() if step is None else collect_last_readers(step.graph)
        values = [each for each in values if each.name not in allowed]
        settings = [each for each in values if _find_owner(each) in layers]
        own = [each for each in values if _find_owner(each) not in layers]
        # the settings of torch's layers are many, and must not put off the look at what is the user's own
        self._values = [_Values(own), _Values([each for each in settings if each.name not in last])]
        self._structure = self._make_structure()
        del self._before, self._reads
        self._begin_shares()
        return self

    def _list_values(self) -> List[ReachedValue]:
        """List the attributes of modules that were read, and what is reached from them and from functions.

        What `forward` itself changes is not among them: a compiled step does not run it.
        """
        attributes: List[ReachedValue] = []
        objects: List[Tuple[str, Any]] = []
        for prefix, module in self._modules:
            own = vars(module)
            for name, read in self._reads[id(module)].items():
                if name in NOT_THE_USERS or is_hashed_by(module, read.value):
                    continue
                if not read.is_missing and not is_plain(read.value):
                    objects.append((prefix + name, read.value))
                of_class = None if name in own else inspect.getattr_static(type(module), name, None)
                if isinstance(of_class, property):
                    objects.append((prefix + name, of_class))
                elif is_written(of_class) or (read.is_missing and not has_name(module, name)):
                    attributes.append(ReachedValue(prefix + name, own.get, name, None))
                elif name in own and is_same(own[name], read.value):
                    attributes.append(ReachedValue(prefix + name, own.get, name, read.value))
                elif of_class is not None and is_plain(read.value) and is_same(of_class, read.value):
                    attributes.append(ReachedValue(prefix + name, partial(getattr, module), name, read.value))
        names = {name for reads in self._reads.values() for name in reads}
        attributes += [
            ReachedValue(f"{kind.__name__}.{name}", vars(kind).get, name, vars(kind)[name])
            for kind in _collect_kinds(self._modules)
            for name in names & vars(kind).keys()
            if is_written(vars(kind)[name])
        ]
        reached = _list_reached(self._port, self._modules, objects)
        changed = {each.identity for each in self._before if not is_same(each.value, each.read())}
        noted = (item for reads in self._reads.values() for item in reads.items() if item[0] not in NOT_THE_USERS)
        changed |= {identity for _name, read in noted for identity in read.iter_changes()}
        return [*attributes, *(each for each in reached if each.identity not in changed)]

    def _begin_shares(self) -> None:
        structure = [_make_look(share) for share in self._structure.make_shares()]
        looks = [make() for values in self._values for make in (values.make_shares, values.make_content_shares)]
        parts = [part for part in (*looks, structure) if part]
        self.num_shares = max(map(len, parts), default=0)
        shares = [[part[number % len(part)] for part in parts] for number in range(self.num_shares)]
        self._shares = itertools.cycle(shares or [[]])

    def look(self) -> None:
        """Compare the next share, and everything if something is new there; each call asks."""
        for is_as_it_was in next(self._shares):
            if not is_as_it_was():
                self.say()

    def say(self) -> None:
        """Compare everything, and say what is new."""
        with self._lock:
            for reached, now in (change for values in self._values for change in values.take_changes()):
                self._findings.say(describe_change(reached, now, self._findings.renewal))
            self._structure.say_changes()
            self._begin_shares()


def _make_look(share: StructureShare) -> Look:
    """Make a function that tells whether a part of the model is as it was; what it compares is at hand."""
    empty, filled, copies, single, modules, kinds, attributes, num_attributes, moded, modes, *of_tensors = share
    tensors, trained, hookless = of_tensors
    first_hooks, *other_hooks = GRADIENT_HOOKS

    def is_as_it_was() -> bool:
        if any(empty) or sum(map(len, attributes)) != num_attributes or [*map(_read_mode, moded)] != modes:
            return False
        if [*map(type, modules)] != kinds:
            return False
        try:
            if filled != copies:
                return False
        except RuntimeError:  # another tensor, whose comparison has no truth value
            return False
        for holder, name, tensor in single:
            if holder.get(name) is not tensor:
                return False
        if not tensors:
            return True
        with DisableTorchFunctionSubclass():
            if [*map(requires_grad, tensors)] != trained or any(map(first_hooks, hookless)):
                return False
            return not (other_hooks and any(map(other_hooks[0], hookless)))

    return is_as_it_was


# -- values of Python --------------------------------------------------------------------------------------------------


def _list_reached(
    port: Port, modules: Sequence[Tuple[str, nn.Module]], objects: Sequence[Tuple[str, Any]]
) -> List[ReachedValue]:
    """List what is reached from `objects`, and from the functions that a call of the port runs."""
    written = [kind for kind in _collect_kinds(modules) if "forward" in vars(kind)]
    forwards = [
        ReachedValue(f"{kind.__name__}.forward", vars(kind).get, "forward", vars(kind)["forward"]) for kind in written
    ]
    functions = [(each.name, each.value) for each in forwards if not each.value.__module__.startswith("torch.")]
    functions += [(str(getattr(each, "__qualname__", type(each).__name__)), each) for each in port.wrapped.functions]
    known = [module for _prefix, module in modules]
    functions += [("hook", hook) for hook in list_forward_hooks(known)]
    return [*forwards, *list_reached_values(functions, objects, known=known)]


def _find_owner(value: ReachedValue) -> int:
    return id(getattr(value.get, "__self__", None))


def _collect_kinds(modules: Sequence[Tuple[str, nn.Module]]) -> Set[type]:
    """Collect the classes of modules, and those that they inherit from."""
    return {base for kind in {type(module) for _prefix, module in modules} for base in kind.__mro__} - {nn.Module}


class _Content(NamedTuple):
    """A tensor of the host that is a constant of the step, or an array of NumPy as one, and a copy of it."""

    reached: ReachedValue
    tensor: torch.Tensor
    version: int
    copied: torch.Tensor


class _Values:
    """The values that a step has read, in shares."""

    def __init__(self, values: Sequence[ReachedValue]) -> None:
        self._values = list(values)
        tensors = [(reached, tensor) for reached in values for tensor in list_constants(reached.value)]
        self._contents = [
            _Content(reached, tensor, read_version(tensor), tensor.detach().clone()) for reached, tensor in tensors
        ]

    def make_shares(self) -> List[Look]:
        """Cut the values into shares, which calls compare."""
        values = self._values
        parts = [values[first : first + _VALUES_A_CALL] for first in range(0, len(values), _VALUES_A_CALL)]
        return [*map(_make_value_look, parts)]

    def make_content_shares(self) -> List[Look]:
        """Cut the tensors into shares."""
        contents = self._contents
        tensors = [contents[first : first + _TENSORS_A_CALL] for first in range(0, len(contents), _TENSORS_A_CALL)]
        return [partial(_are_unwritten, part) for part in tensors]

    def take_changes(self) -> List[Tuple[ReachedValue, Any]]:
        """Return the values that are others now, with what they are, and compare only the rest from now on."""
        present = [(reached, reached.read()) for reached in self._values]
        # a remedy stands for a function of a library as long as another thread captures
        present = [pair for pair in present if "_porting_stands_for" not in getattr(pair[1], "__dict__", {})]
        changed = [(reached, now) for reached, now in present if not is_same(reached.value, now)]
        written = [*{id(c.reached): c.reached for c in self._contents if not _is_unwritten(c)}.values()]
        gone = [*(reached for reached, _now in changed), *written]
        self._values = [each for each in self._values if not any(each is other for other in gone)]
        self._contents = [each for each in self._contents if not any(each.reached is other for other in gone)]
        return [*changed, *((reached, reached.value) for reached in written)]


def _make_value_look(values: Sequence[ReachedValue]) -> Look:
    """Make a function that compares values; those of one holder are read by one call of C."""
    # a dictionary holds its entries, and is itself a value by its keys
    groups = [list(group) for _holder, group in itertools.groupby(values, lambda v: (v.holder, v.get is tuple))]
    getters = [(group[0].get, [each.key for each in group]) for group in groups]
    before = [[each.value for each in group] for group in groups]

    def are_as_they_were() -> bool:
        try:
            return [[*map(get, keys)] for get, keys in getters] == before
        except Exception:  # gone, or a tensor in the place of a number: `take_changes` finds out
            return False

    return are_as_they_were


def _are_unwritten(contents: Sequence[_Content]) -> bool:
    return all(map(_is_unwritten, contents))


def _is_unwritten(content: _Content) -> bool:
    tensor = content.tensor
    is_counted = read_version(tensor) == content.version
    return is_counted and tensor.shape == content.copied.shape and torch.equal(tensor, content.copied)


# -- writes to weights -------------------------------------------------------------------------------------------------


class HostWrites:
    """Tells a runner before each call whether the host's weights are others than its executable has.

    Between a call that trains and the next look at a weight the host's values are out of date, and nobody can write to
    them: they are copied when they are fetched, and compared by the next call. A runner that does not train compares in
    each call. Somebody who holds an alias of a weight, such as an array, can write to it at any time: `has_aliases`
    tells that the weights are to be fetched after each call, so that it shows and takes what it would without a device.
    A tensor that was put in the place of a buffer, as `double()` and `float()` do, is one more way to write.
    """

    def __init__(self, model: nn.Module, *, trains: bool, follows_aliases: bool = True) -> None:
        """Start to watch the tensors of `model`; those made in inference mode cannot be watched."""
        tensors = [host.tensor for host in host_tensors(model)]
        self._tensors: List[torch.Tensor] = [tensor for tensor in tensors if not tensor.is_inference()]
        self._as_compiled, self._buffers = as_registered(model), list_held_buffers(model.modules())
        self._trains = trains
        self._follows_aliases = trains and follows_aliases
        self._seen: Tuple[int, List[int]] = (0, [])
        self._copies: Optional[List[torch.Tensor]] = None
        self.has_aliases = False
        self.note_agreement()

    def note_agreement(self) -> None:
        """Note that host and device have the same values now, as after a fetch, or after the weights were sent."""
        with DisableTorchFunctionSubclass():
            self._seen = self._look_at_all()
            if self._copies is None:
                self._copies = [tensor.detach().clone() for tensor in self._tensors]
            else:
                for tensor, copied in zip(self._tensors, self._copies):
                    copied.copy_(tensor.detach())

    def note_call(self) -> None:
        """Note that a call has run: what it has trained is newer than what the host has."""
        with DisableTorchFunctionSubclass():
            self._seen = self._look_at_all()
        if self._trains:
            self._copies = None

    def is_written(self) -> bool:
        """Tell whether something was written since the last agreement, or since the last call if that has trained."""
        self.follow_exchanges()
        with DisableTorchFunctionSubclass():
            if self._look_at_all() != self._seen:
                return True
            if self._copies is None:
                return False
            if self._follows_aliases:
                self.has_aliases = any(map(has_alias, self._tensors))
            return not all(map(are_same_bytes, self._tensors, self._copies))

    def follow_exchanges(self) -> List[torch.Tensor]:
        """Watch the tensors that were put in the place of buffers, and return them; they are shown as those were."""
        found: List[torch.Tensor] = []
        for number, buffer in enumerate(self._buffers):
            now: Any = buffer.registry.get(buffer.name)
            if now is not buffer.tensor and buffer.is_followed_by(now):
                place = next(place for place, tensor in enumerate(self._tensors) if tensor is buffer.tensor)
                # the backend's class fetches what was trained for a look
                now.__class__ = type(buffer.tensor)
                self._tensors[place], self._buffers[number] = now, buffer._replace(tensor=now)
                found.append(now)
        return found

    def send(self, executor: Executor) -> None:
        """Send the host's weights; those that `executor` has trained since the last fetch come to the host before.

        Tensors that got other memory since (`weight.data = tensor`) keep what is in that.
        """
        with DisableTorchFunctionSubclass(), torch.no_grad():
            places = zip(self._tensors, self._seen[1])
            given = [tensor for tensor, place in places if self._copies is None and _find_memory(tensor) != place]
            values = [*map(torch.Tensor.clone, given)]
            if given:
                executor.copyWeightsToHost()
            for tensor, value in zip(given, values):
                tensor.copy_(value)
        with self._as_compiled():
            executor.copyWeightsToDevice()
        self.note_agreement()

    def note_fetches(self, executor: Any, counts: BatchCounts) -> None:
        """Let the weights that `executor` brings to the host count as seen, and bring `counts` with them.

        PopTorch fetches through the instance's attribute, so that it can be exchanged.
        """
        fetch, own, writes = type(executor).copyWeightsToHost, weakref.ref(executor), weakref.ref(self)
        as_compiled = self._as_compiled

        def copy_weights_to_host() -> None:
            running = own()
            if running is None:
                return
            watching = writes()
            with DisableTorchFunctionSubclass(), torch.no_grad():
                given = [] if watching is None else watching.follow_exchanges()
                values = [*map(torch.Tensor.clone, given)]
            with torch.inference_mode(False):  # what is kept must not be tensors of that mode
                with counts.survive_fetch(), as_compiled():
                    fetch(running)
                if watching is not None:
                    watching.note_agreement()
            with DisableTorchFunctionSubclass(), torch.no_grad():
                for tensor, value in zip(given, values):
                    tensor.copy_(value)  # what the next call sends

        executor.copyWeightsToHost = copy_weights_to_host

    def _look_at_all(self) -> Tuple[int, List[int]]:
        return sum(map(read_version, self._tensors)), [*map(_find_memory, self._tensors)]
