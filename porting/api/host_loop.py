"""`HostLoopModel`: forward and backward on the device, for a loop that keeps loss and optimizer on the host.

A device with PopTorch's API has no backward pass by itself: it runs whole steps. So there are two executables. The one
of `forward` is an inference in the modes that the model has. That of the backward pass trains on the surrogate loss
`sum(output x cotangent)`, whose gradients are those of the output, with a learning rate of 0, and hands the gradients
over. It computes `forward` once more, on weights of its own, which are sent to it before it runs: an executor brings
weights back to the host that it calls trained, and nothing is trained here.
"""

from __future__ import annotations

import copy
import weakref
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from ..diagnostics import CaptureError, Finding, OptionError, Severity, caller_place
from ..host_tensors import host_tensors
from ..options import PortOptions
from ..structure import flatten_tensors, rebuild
from ..support.uncompiled_code import keep_class_uncompiled, keep_uncompiled
from ..torch_insides.modules import DROPOUTS
from .compilation import destroy_unseen
from .derivatives import read_saved_tensors, refuse_calls_of_transforms, refuse_dual_numbers, refuse_higher_derivatives
from .gradients import read_gradients
from .host_writes import are_same_bytes
from .moves import FixedModule, refuse_assignment
from .optimizer import PortOptimizer
from .port import Port, PortFindings, read_modes
from .run_report import ExecutorRecord, RunReport, make_report
from .runner import Runner
from .shapes import CompiledShapes

__all__ = ["HostLoopModel", "check_host_loop"]

MakeParts = Callable[..., Tuple[Port, PortFindings, PortOptimizer]]
"""Makes what a port is put together of, for a model, its loss, `options` and maybe an `optimizer`."""


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
        self.training = port.model.training
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
        return self._find_pair(args, kwargs).forward.compile(args, kwargs)

    def train(self, mode: bool = True) -> HostLoopModel:
        """Switch the model between train and eval mode, each with executables of its own."""
        self._port.model.train(mode)
        self.training = mode
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the model's own state."""
        return self._port.model.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
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
        parameters = list(self._port.model.parameters())
        refuse_calls_of_transforms(parameters)
        # what is compiled in: the modes of all modules, and which parameters get a gradient
        key = (*read_modes(self._port), *(parameter.requires_grad for parameter in parameters))
        if key not in self._pairs:
            self._pairs[key] = CompiledShapes(
                # not by way of `self`: what is left of the pairs must not keep their model alive
                partial(_Pair, self._port, self._findings, self._make_parts),
                attrgetter("forward"),
                self._findings,
                self._port.options,
            )
        return self._pairs[key].find(args, kwargs)


def _destroy_all(pairs: Dict[Any, CompiledShapes[_Pair]]) -> None:
    for pair in _list_all(pairs):
        pair.destroy()
    pairs.clear()


def _list_all(pairs: Dict[Any, CompiledShapes[_Pair]]) -> List[_Pair]:
    return [pair for shapes in pairs.values() for pair in shapes]


@dataclass
class _Call:
    """A call of `forward` that may be differentiated; tensors of the batch are in the order of `flatten_tensors`."""

    pair: _Pair
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    needs_gradient: Tuple[bool, ...]
    random_state: Optional[List[int]] = None
    returned: Any = None
    buffers: Optional[Dict[str, torch.Tensor]] = None  # as they were before, if the call writes to some


class _Pair:
    """The executables of forward and backward for one setting of the model's modes and trainable parameters.

    There is one for the backward pass from each choice of outputs that a loss is computed from.
    """

    def __init__(self, port: Port, findings: PortFindings, make_parts: MakeParts) -> None:
        self._port = port
        self._findings = findings
        self._make_parts = make_parts
        self._parameters = [host for host in host_tensors(port.model) if host.tensor.requires_grad]
        # An executable in train mode has newer statistics on the device; in eval mode no buffer is written to.
        self._has_statistics = any(read_modes(port)) and any(True for _ in port.model.buffers())
        # The simulator's stream is one of torch's: there the loop gets the numbers that it would get without a device.
        self._draws_from_host = port.backend.is_simulator and port.options.seed is None
        name = _name_pass("forward", port)
        self.forward = Runner(name, port, findings, owner="ported", random_states={}, keeps_modes=True)
        self._backwards: Dict[Any, _Backward] = {}

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return what the model returns, with a way back for gradients unless torch records none."""
        tensors = flatten_tensors((args, kwargs))
        needs_gradient = tuple(tensor.requires_grad for tensor in tensors)
        plain_args, plain_kwargs = rebuild((tuple(args), dict(kwargs)), [tensor.detach() for tensor in tensors])
        call = _Call(self, plain_args, plain_kwargs, needs_gradient)
        parameters = [host.tensor for host in self._parameters]
        if not (torch.is_grad_enabled() and (parameters or any(needs_gradient))):
            self.compute(call)
            return call.returned
        outputs = _OnDevice.apply(call, *parameters, *tensors)
        # autograd keeps the call as long as the outputs, which must not keep themselves
        returned, call.returned = call.returned, None
        return rebuild(returned, outputs)

    def compute(self, call: _Call) -> List[torch.Tensor]:
        """Run `forward` on the device; return the tensors among its results."""
        if not self.forward.has_executable():
            self.forward.compile(call.args, call.kwargs, waits=False)
        if self._is_random():
            self._say_it_is_random()
            call.random_state = self._read_random_state()
        if self._has_statistics:
            call.buffers = {name: buffer.clone() for name, buffer in self._port.model.named_buffers()}
        call.returned = self.forward.run(call.args, call.kwargs)
        if call.random_state is not None and self._draws_from_host:
            torch.set_rng_state(torch.tensor(self.forward.executor.rng_state[1:]).view(torch.uint8))
        outputs = flatten_tensors(call.returned)
        for tensor in outputs:
            # a backend refuses `backward()` on what it returns, which is right where it has made the step
            vars(tensor).pop("backward", None)
        if self._has_statistics:
            self.forward.fetch_buffers()
        return outputs

    def differentiate(self, call: _Call, cotangents: Mapping[int, torch.Tensor]) -> List[Optional[torch.Tensor]]:
        """Return the gradients of the parameters and of the call's tensors; `cotangents` are those of some outputs.

        A parameter that only the other outputs depend on has none, which is not the same as zeros to an optimizer.
        """
        key = (call.needs_gradient, tuple(cotangents))
        if key not in self._backwards:
            surrogate = _Surrogate(self._port.model, call, outputs=tuple(cotangents))
            self._backwards[key] = _Backward(surrogate, self._port, self._make_parts)
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


def _choose_backward_options(options: PortOptions) -> PortOptions:
    # both passes run as they begin: the backward pass of another engine would round otherwise than this forward pass
    return options.replace(keep_gradients=True, frozen="allow", engine=options.engine or "ready")


def _name_pass(name: str, port: Port) -> str:
    return name if port.model.training else f"{name} in eval mode"


class _OnDevice(torch.autograd.Function):
    """A call as an operator of autograd, of the parameters and of the batch's tensors."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: torch.Tensor) -> Tuple[torch.Tensor, ...]:
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


class _Backward:
    """The executable that computes gradients, and its own copy of the weights."""

    def __init__(self, surrogate: _Surrogate, port: Port, make_parts: MakeParts) -> None:
        self._model = port.model
        # Plain views: to look at the tensors themselves would fetch them from the device once they are an executor's.
        self._views = [(host.name, host.tensor.detach()) for host in host_tensors(surrogate.model)]
        trained = [parameter for parameter in surrogate.parameters() if parameter.requires_grad]
        self._port, findings, self._optimizer = make_parts(
            surrogate,
            None,
            optimizer=torch.optim.SGD(trained, lr=0.0),
            options=_choose_backward_options(port.options),
        )
        name = _name_pass("backward", port)
        self.runner = Runner(
            name,
            self._port,
            findings,
            optimizer=self._optimizer,
            owner="ported",
            random_states={},
            has_own_weights=True,
        )

    def run(self, call: _Call, cotangents: Sequence[torch.Tensor]) -> Dict[str, torch.Tensor]:
        """Return the gradients by the names of the surrogate's parameters."""
        batch = (tuple(cotangents), *call.args)
        self._copy_weights(call.buffers or {})
        if not self.runner.has_executable():
            self._optimizer.prepare()
        # torch's backward pass records nothing, and here a step is to be differentiated
        with torch.enable_grad():
            self.runner.compile(batch, call.kwargs, waits=False)
            if call.random_state is not None:
                self.runner.executor.rng_state = call.random_state
            self.runner.run(batch, call.kwargs)
        gradients = read_gradients(self._port, self._optimizer.device, self.runner.executor, -1)
        self.runner.record.bytes_to_host += sum(each.numel() * each.element_size() for each in gradients.values())
        if not all(bool(gradient.isfinite().all()) for gradient in gradients.values()):
            # the step of size 0 has made weights of the device NaN
            self.runner.copy_weights_to_host()
        return gradients

    def _copy_weights(self, buffers: Mapping[str, torch.Tensor]) -> None:
        """Bring the weights up to date if the host has changed its own since; the call sends what was written to."""
        now = {**{host.name: host.tensor for host in host_tensors(self._model)}, **buffers}
        with torch.no_grad():
            for name, view in self._views:
                if not are_same_bytes(view, now[name].detach()):
                    view.copy_(now[name])


class _Surrogate(nn.Module):
    """A copy of a model with the loss `sum(output x cotangent)`, whose gradients are those of the outputs.

    `probes` are zeros that are added to tensors of the batch that need a gradient: the gradient of a probe is that of
    the tensor, for which a device has no name. `outputs` are the numbers of those that have a cotangent.
    """

    def __init__(self, model: nn.Module, call: _Call, *, outputs: Tuple[int, ...]) -> None:
        super().__init__()
        self.model = copy.deepcopy(model)
        self.training = model.training
        tensors = enumerate(flatten_tensors((call.args, call.kwargs)))
        probes = {number: torch.zeros_like(tensor) for number, tensor in tensors if call.needs_gradient[number]}
        self.probes = nn.ParameterList(probes.values())
        self._probed = list(probes)
        self._outputs = outputs

    def forward(self, cotangents: Sequence[torch.Tensor], *args: Any, **kwargs: Any) -> torch.Tensor:
        """Return the loss."""
        if self._probed:
            tensors = flatten_tensors((args, kwargs))
            for number, probe in zip(self._probed, self.probes):
                tensors[number] = tensors[number] + probe
            args, kwargs = rebuild((args, kwargs), tensors)
        outputs = flatten_tensors(self.model(*args, **kwargs))
        # in single precision: the gradient of a product of halves is the cotangent all the same, but its sum overflows
        products = [
            (outputs[number].float() * cotangent.float()).sum() for number, cotangent in zip(self._outputs, cotangents)
        ]
        return torch.stack(products).sum()
