"""Run forward and backward on the device for a loop that keeps loss and optimizer on the host.

`to_ipu(model, loop="host")` returns a `HostLoopModel`. A device with PopTorch's API runs whole steps and has no
backward pass by itself, so there are two executables. The one of `forward` is an inference in the modes that the model
has. That of the backward pass trains on the surrogate loss `sum(output x cotangent)`, whose gradients are those of the
output, with a learning rate of 0, and hands the gradients over. It computes `forward` once more, on weights of its own,
which are sent to it before it runs: an executor brings weights back to the host that it calls trained, and nothing is
trained here.
"""

from __future__ import annotations

import weakref
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import torch

from ..adapters.cumulative_counts import counted_on_device
from ..adapters.derivatives import (
    read_saved_tensors,
    refuse_calls_of_transforms,
    refuse_dual_numbers,
    refuse_higher_derivatives,
)
from ..diagnostics import CaptureError, Finding, OptionError, Severity, caller_place
from ..host_tensors import host_tensors
from ..options import PortOptions
from ..structure import flatten_tensors, rebuild
from ..support.process import this_instance
from ..support.uncompiled_code import keep_class_uncompiled, keep_uncompiled
from ..torch_insides.modules import DROPOUTS, NORMS_WITH_STATE
from .backward_pass import BackwardPass, HostCall, MakeParts, name_pass
from .compilation import destroy_unseen
from .moves import FixedModule, refuse_assignment
from .port import Port, PortFindings, read_modes
from .run_report import ExecutorRecord, RunReport, make_report
from .runner import Runner
from .shapes import CompiledShapes

__all__ = ["HostLoopModel", "check_host_loop"]


def check_host_loop(options: PortOptions, given: Mapping[str, Any]) -> None:
    """Raise OptionError P002 for arguments and options that belong to a port which makes the steps."""
    help = "leave it where it is, in the loop; or leave `loop` out, and the device makes the steps"
    fault = next((f"`{name}` is given" for name, value in given.items() if value is not None), "")
    for name in () if fault else ("accumulation", "device_iterations", "replicas", "stages"):
        value = getattr(options, name)
        if value not in (1, None):
            fault = f"`{name}` is {value}"
            help = (
                f"a host loop makes the optimizer's step itself: `PortOptions({name}=...)` is for a port that makes it"
            )
    if fault:
        raise OptionError.at_caller("P002", message=f"{fault} with `loop='host'`", help=help)


@keep_class_uncompiled
class HostLoopModel(FixedModule):
    """A model whose `forward` and backward pass run on the device, in the loop that it has; `to_ipu` makes it.

    `output = ported(x)`, `loss = criterion(output, y)`, `loss.backward()` and `optimizer.step()` work as they do
    without a device, with any loss and any optimizer of `torch.optim`: gradients arrive in `.grad` of the model's own
    parameters. Weights are sent to the device when they have changed. BatchNorm's statistics change once a call.

    Attributes that are not found here are the user's model's.
    """

    def __init__(self, port: Port, findings: PortFindings, make_parts: MakeParts) -> None:
        """Compile nothing yet: each pair of executables is made by the first call that needs it."""
        super().__init__(port)
        self._findings = findings
        self._make_parts = make_parts
        self._pairs: Dict[Any, CompiledShapes[_Pair]] = {}
        self._tensors: List[torch.Tensor] = []
        self.training = port.model.training
        _say_what_instances_train(findings)
        weakref.finalize(self, destroy_unseen, _destroy_all, self._pairs).atexit = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the model returns, connected to autograd.

        Raises BatchError for a batch unlike the one compiled for (B001-B003), CaptureError for a model that no static
        graph can hold, and L015 where other derivatives are asked for than the gradients of one backward pass.
        """
        return self._find_pair(args, kwargs).run(args, kwargs)

    def compile(self, *args: Any, **kwargs: Any) -> float:  # type: ignore[override]
        """Compile `forward` for batches like this one, in the model's modes, and return the seconds it took.

        The backward pass is compiled by the first `backward()`, which knows the outputs.
        """
        return self._find_pair(args, kwargs).compile(args, kwargs)

    def train(self, mode: bool = True) -> HostLoopModel:
        """Switch the model between train and eval mode, each with executables of its own."""
        self._port.model.train(mode)
        self.training = mode
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the model's own state."""
        return self._port.model.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load weights into the model; they are sent with the next call. OptionError P002 for `assign`."""
        refuse_assignment(assign)
        return self._port.model.load_state_dict(state_dict, strict=strict)

    def destroy(self) -> None:
        """Drop all executables; the next call compiles anew."""
        _destroy_all(self._pairs)

    def report(self) -> RunReport:
        """Tell which device ran, how often, when and how long it compiled."""
        records = [record for pair in _list_all(self._pairs) for record in pair.records]
        report = make_report(self._port, None, self._findings.all, records)
        return replace(report, optimizer="on the host")

    def _find_pair(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Pair:
        model = self._port.model
        hosts = host_tensors(model)
        parameters = [host.tensor for host in hosts if host.kind == "parameter"]
        refuse_calls_of_transforms(parameters)
        self._follow_exchanges([host.tensor for host in hosts])
        # what is compiled in: the modes of all modules, how statistics move, and which parameters get a gradient
        momenta = (getattr(part, "momentum", None) for part in model.modules() if isinstance(part, NORMS_WITH_STATE))
        key = (*read_modes(self._port), *momenta, *(parameter.requires_grad for parameter in parameters))
        if key not in self._pairs:
            self._pairs[key] = CompiledShapes(
                # not by way of `self`: what is left of the pairs must not keep their model alive
                partial(_Pair, self._port, self._findings, self._make_parts),
                attrgetter("forward"),
                self._findings,
                self._port.options,
            )
        return self._pairs[key].find(args, kwargs)

    def _follow_exchanges(self, tensors: List[torch.Tensor]) -> None:
        """Compile anew where the model has other tensors than the executables, which would go on with the former."""
        if [*map(id, tensors)] == [*map(id, self._tensors)]:
            return
        if self._pairs:
            message = "parameters or buffers were exchanged for others: the executables are compiled anew"
            self._findings.say(Finding("D005", message=message, severity=Severity.NOTE, place=caller_place()))
        _destroy_all(self._pairs)
        self._tensors = tensors


def _destroy_all(pairs: Dict[Any, CompiledShapes[_Pair]]) -> None:
    for pair in _list_all(pairs):
        pair.destroy()
    pairs.clear()


def _list_all(pairs: Dict[Any, CompiledShapes[_Pair]]) -> List[_Pair]:
    return [pair for shapes in pairs.values() for pair in shapes]


def _say_what_instances_train(findings: PortFindings) -> None:
    """Warn (D017) that each of several instances has a loop, and an optimizer, of its own."""
    instances = this_instance().size
    if instances > 1:
        message = f"each of the {instances} instances trains by itself: a loop on the host joins no gradients"
        ways = [
            "let a call make the step, which joins them: `to_ipu(model, loss, optimizer=optimizer)`",
            "or average `.grad` over the instances before `optimizer.step()`",
        ]
        findings.say(Finding("D017", message, caller_place(), help=ways, severity=Severity.WARNING))


class _Pair:
    """The executables of forward and backward for one setting of the model's modes and trainable parameters.

    There is one for the backward pass from each choice of outputs that a loss is computed from.
    """

    def __init__(self, port: Port, findings: PortFindings, make_parts: MakeParts) -> None:
        self._port = port
        self._findings = findings
        self._make_parts = make_parts
        self._parameters = [host for host in host_tensors(port.model) if host.tensor.requires_grad]
        # The simulator's stream is one of torch's: there the loop gets the numbers that it would get without a device.
        self._draws_from_host = port.backend.is_simulator and port.options.seed is None
        name = name_pass("forward", port)
        self.forward = Runner(name, port, findings, owner="ported", random_states={}, keeps_modes=True)
        self._backwards: Dict[Any, BackwardPass] = {}

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return what the model returns, with a way back for gradients unless torch records none."""
        tensors = flatten_tensors((args, kwargs))
        needs_gradient = tuple(tensor.requires_grad for tensor in tensors)
        plain_args, plain_kwargs = rebuild((tuple(args), dict(kwargs)), [tensor.detach() for tensor in tensors])
        call = HostCall(self, plain_args, plain_kwargs, needs_gradient)
        parameters = [host.tensor for host in self._parameters]
        if not (torch.is_grad_enabled() and (parameters or any(needs_gradient))):
            self.compute(call)
            return call.returned
        outputs = _OnDevice.apply(call, *parameters, *tensors)
        # autograd keeps the call as long as the outputs, which must not keep themselves
        returned, call.returned = call.returned, None
        return rebuild(returned, outputs)

    def compile(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, waits: bool = True) -> float:
        """Compile `forward` for a batch if that is to be done, and return the seconds it took."""
        with counted_on_device(self._port.model):
            return self.forward.compile(args, kwargs, waits=waits)

    def compute(self, call: HostCall) -> List[torch.Tensor]:
        """Run `forward` on the device; return the tensors among its results."""
        with counted_on_device(self._port.model):
            if not self.forward.has_executable():
                self.forward.compile(call.args, call.kwargs, waits=False)
            if self._is_random():
                self._say_it_is_random()
                call.random_state = self._read_random_state()
            call.state = {host.name: host.tensor.detach().clone() for host in self.forward.written_state}
            call.returned = self.forward.run(call.args, call.kwargs)
        if call.random_state is not None and self._draws_from_host:
            torch.set_rng_state(torch.tensor(self.forward.executor.rng_state[1:]).view(torch.uint8))
        outputs = flatten_tensors(call.returned)
        for tensor in outputs:
            # a backend refuses `backward()` on what it returns, which is right where it has made the step
            vars(tensor).pop("backward", None)
        return outputs

    def differentiate(self, call: HostCall, cotangents: Mapping[int, torch.Tensor]) -> List[Optional[torch.Tensor]]:
        """Return the gradients of the parameters and of the call's tensors; `cotangents` are those of some outputs.

        A parameter that only the other outputs depend on has none, which is not the same as zeros to an optimizer.
        """
        key = (call.needs_gradient, tuple(cotangents))
        if key not in self._backwards:
            self._backwards[key] = BackwardPass(self._port, call, self._make_parts, outputs=tuple(cotangents))
        by_name = self._backwards[key].run(call, tuple(cotangents.values()))
        gradients = [by_name.get(f"model.{host.name}") for host in self._parameters]
        probes = (by_name.get(f"probes.{number}") for number in range(sum(call.needs_gradient)))
        return gradients + [next(probes) if needs else None for needs in call.needs_gradient]

    def destroy(self) -> None:
        """Drop the executables."""
        self.forward.destroy()
        for backward in self._backwards.values():
            backward.runner.destroy()
        self._backwards.clear()

    @property
    def records(self) -> List[ExecutorRecord]:
        """What the executors have done."""
        return [self.forward.record, *(backward.runner.record for backward in self._backwards.values())]

    def _is_random(self) -> bool:
        step = self._port.backend.compiled_step(self.forward.executor)
        if step is not None:
            return bool(step.graph.is_random)
        parts = self._port.model.modules()
        return any(isinstance(part, DROPOUTS) and part.training and part.p > 0 for part in parts)

    def _say_it_is_random(self) -> None:
        """Warn (C021) of random numbers, which two executables of an IPU draw differently; there it is an error."""
        finding = Finding(
            "C021",
            message="`forward` draws random numbers, which an IPU would draw anew in the backward pass",
            place=caller_place(),
            help=(
                "leave `loop` out: where the device makes the steps there is one executable",
                "or draw nothing: `nn.Dropout(0.0)`",
            ),
        )
        if not self._port.backend.is_simulator:
            raise CaptureError(replace(finding, severity=Severity.ERROR))
        self._findings.say(finding)

    def _read_random_state(self) -> List[int]:
        """Return where the stream of random numbers stands, which the backward pass draws from once more."""
        executor = self.forward.executor
        if self._draws_from_host:
            executor.rng_state = [0, *torch.get_rng_state().view(torch.int64).tolist()]
        if executor.rng_state is None:
            executor.rng_state = [torch.initial_seed() % 2**32]
        return list(executor.rng_state)


class _OnDevice(torch.autograd.Function):
    """A call as an operator of autograd, of the parameters and of the batch's tensors."""

    @staticmethod
    def forward(ctx: Any, call: HostCall, *tensors: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        """Run the call; see `_Pair.compute`."""
        outputs = call.pair.compute(call)
        ctx.call = call
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(output for output in outputs if not output.is_floating_point()))
        ctx.save_for_backward(*tensors)
        return tuple(outputs)

    @staticmethod
    @keep_uncompiled
    def backward(ctx: Any, *cotangents: Optional[torch.Tensor]) -> Tuple[Optional[torch.Tensor], ...]:
        """Run the backward pass; see `_Pair.differentiate`."""
        refuse_higher_derivatives(cotangents)
        # raises if one of them was written to since
        _unchanged = read_saved_tensors(ctx)
        given = {number: each.contiguous() for number, each in enumerate(cotangents) if each is not None}
        return (None, *ctx.call.pair.differentiate(ctx.call, given))

    jvp = staticmethod(refuse_dual_numbers)  # type: ignore[assignment]
