"""Hold what a ported model is made of (`Port`), and what was found out about it (`PortFindings`).

All modules of this package work on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from torch import nn

from ..adapters import Backend, LossInForward
from ..adapters.backend_protocol import CompiledStep
from ..diagnostics import Finding, Severity, caller_place, notify
from ..host_tensors import HostTensor, host_tensors, walk_modules
from ..module_attributes import collect_plain_modules
from ..options import PortOptions, to_poptorch

__all__ = [
    "Port",
    "PortFindings",
    "list_modules_by_prefix",
    "list_modules_with_modes",
    "list_written_state",
    "name_modules",
    "read_modes",
]


@dataclass(frozen=True)
class Port:
    """The user's model and loss, and where and how they run; nothing of it changes.

    `wrapped` is the model with its loss in `forward`. `training_options` and `inference_options` are the backend's
    own, made of `options`.
    """

    model: nn.Module
    wrapped: LossInForward
    loss: Any
    label: Any
    backend: Backend
    options: PortOptions
    training_options: Any
    inference_options: Any

    @classmethod
    def of(
        cls, model: nn.Module, wrapped: LossInForward, *, backend: Backend, options: PortOptions, **given: Any
    ) -> Port:
        """Make a port with the backend's options; OptionError P001 or P004 for what they cannot say."""
        make = partial(to_poptorch, options, backend.module, popdist=backend.popdist)
        made = {"training_options": make(training=True), "inference_options": make(training=False)}
        return cls(model, wrapped, backend=backend, options=options, **made, **given)


class PortFindings:
    """What was found out about a port: kept for its report, and said once for each place.

    What a compilation finds is deferred to its end: a finding that is an error to somebody must not end it halfway.
    """

    def __init__(self, known: Sequence[Finding], *, allowed: Sequence[str], renewal: str = "") -> None:
        """Keep `known`, which are said already; `allowed` are the names of findings that need not be.

        `renewal` says how a step is compiled anew, where that is not the port's own `destroy()`.
        """
        self.renewal = renewal
        self.all: Tuple[Finding, ...] = tuple(known)
        self._allowed = allowed
        self.deferred: List[Finding] = []

    def say(self, finding: Finding) -> None:
        """Keep a finding for the report, once for each place, and warn of it unless it is a note or allowed."""
        if any((finding.message, finding.place) == (known.message, known.place) for known in self.all):
            return
        self.all += (finding,)
        if finding.severity is not Severity.NOTE and finding.slug not in self._allowed:
            notify(finding)

    def say_it_is_compiled_in(self, what: str) -> None:
        """Warn (D005) of a change that the executable does not follow, each time that it is made."""
        remedy = "call `ported.destroy()`: the next call compiles the step as the model is then"
        if self.renewal:
            remedy = f"to compile the step as the model is then: {self.renewal}"
        finding = Finding("D005", message=f"{what}, which goes on as before", place=caller_place(), help=remedy)
        if finding not in self.all:
            self.all += (finding,)
        notify(finding)

    def begin_compilation(self) -> None:
        """Forget what a compilation found that did not end well."""
        self.deferred.clear()

    def defer(self, finding: Finding) -> None:
        """Keep a finding for the end of the compilation."""
        self.deferred.append(finding)

    def say_deferred(self) -> None:
        """Say what a compilation that ended well, or a call, has found."""
        deferred, self.deferred = self.deferred, []
        for finding in deferred:
            self.say(finding)


# -- modules -----------------------------------------------------------------------------------------------------------


def name_modules(port: Port) -> Iterator[Tuple[str, nn.Module]]:
    """Yield the modules of the model and of its losses, by the names that the user knows."""
    for prefix, module in walk_modules(port.model):
        yield prefix[:-1] or type(module).__name__, module
    for name, function in _list_losses(port, "loss"):
        if isinstance(function, nn.Module):
            for prefix, module in walk_modules(function):
                yield f"{name}.{prefix}"[:-1], module


def list_modules_by_prefix(port: Port) -> List[Tuple[str, nn.Module]]:
    """List the modules whose `forward` a step runs, the model's and the losses', with their attributes' prefix."""
    wrapper = getattr(port.model, "_porting_prefix", "")  # the user's model may be in one of this package's
    found = [
        (prefix[len(wrapper) * prefix.startswith(wrapper) :], m)
        for prefix, m in collect_plain_modules(port.model).items()
    ]
    for name, module in _list_losses(port, ""):
        if isinstance(module, nn.Module):
            prefix = f"loss.{name}." if name else "loss."
            found += [(prefix + inner, item) for inner, item in collect_plain_modules(module).items()]
    return found


def _list_losses(port: Port, name_of_one: str) -> List[Tuple[str, Any]]:
    """List the functions or modules that compute the losses, with their names."""
    losses = port.loss if isinstance(port.loss, Mapping) else {name_of_one: port.loss}
    return [(name, getattr(loss, "function", loss)) for name, loss in losses.items()]


# -- train and eval modes ----------------------------------------------------------------------------------------------


def read_modes(port: Port) -> List[bool]:
    """List for each module of the user's model whether it is in train mode."""
    return [module.training for module in port.model.modules()]


def list_modules_with_modes(port: Port) -> List[nn.Module]:
    """List the model, the module around it and the losses, which may have modules in common."""
    roots = [port.model, port.wrapped, *(function for _name, function in _list_losses(port, ""))]
    found: Dict[int, nn.Module] = {}
    for root in roots:
        if isinstance(root, nn.Module):
            found.update((id(module), module) for module in root.modules())
    return list(found.values())


# -- state -------------------------------------------------------------------------------------------------------------


def list_written_state(port: Port, step: Optional[CompiledStep], *, keeps_modes: bool) -> List[HostTensor]:
    """List the buffers and parameters that a call writes to though it trains nothing; `step` is what was captured.

    A backend that does not show the step may write to each buffer in train mode: to fetch them takes time, and to fetch
    frozen parameters as well would take as long as the model is large.
    """
    hosts = host_tensors(port.model)
    if step is None:
        is_in_train_mode = keeps_modes and any(read_modes(port))
        return [host for host in hosts if is_in_train_mode and host.kind == "buffer"]
    written = step.graph.mutated_buffers | step.graph.mutated_parameters
    return [host for host in hosts if host.name in written]
