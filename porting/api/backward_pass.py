"""Compute gradients for a loop on the host, by an executable with its own copy of the weights.

`HostLoopModel` uses it. The executable trains a copy of the model with a learning rate of 0, on a loss whose gradients
are those of the model's outputs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from ..adapters.cumulative_counts import let_device_count
from ..host_tensors import are_same_bytes, host_tensors
from ..model_copies import copy_model
from ..structure import flatten_tensors, rebuild
from .gradients import read_gradients
from .optimizer import PortOptimizer
from .port import Port, PortFindings
from .runner import Runner

__all__ = ["BackwardPass", "HostCall", "MakeParts", "name_pass"]

MakeParts = Callable[..., Tuple[Port, PortFindings, PortOptimizer]]
"""Makes what a port is put together of, for a model, its loss, `options` and maybe an `optimizer`."""


@dataclass
class HostCall:
    """A call of `forward` that may be differentiated; tensors of the batch are in the order of `flatten_tensors`."""

    pair: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    needs_gradient: Tuple[bool, ...]
    random_state: Optional[List[int]] = None
    returned: Any = None
    state: Mapping[str, torch.Tensor] = field(default_factory=dict)  # what the call writes to, as it was before


def name_pass(name: str, port: Port) -> str:
    """Return what reports call the executable of a pass in the model's mode."""
    return name if port.model.training else f"{name} in eval mode"


class BackwardPass:
    """The executable that computes gradients, and its own copy of the weights."""

    def __init__(self, port: Port, call: HostCall, make_parts: MakeParts, *, outputs: Tuple[int, ...]) -> None:
        """Copy the model; nothing is compiled yet. `outputs` are the numbers of those that have a cotangent."""
        self._model = port.model
        surrogate = _Surrogate(port.model, call, outputs=outputs)
        let_device_count(surrogate)
        # Plain views: to look at the tensors themselves would fetch them from the device once they are an executor's.
        self._views = [(host.name, host.tensor.detach()) for host in host_tensors(surrogate.model)]
        trained = [parameter for parameter in surrogate.parameters() if parameter.requires_grad]
        # both passes run as they begin: with another engine the backward pass would round otherwise than `forward`
        options = port.options.replace(keep_gradients=True, frozen="allow", engine=port.options.engine or "ready")
        optimizer = torch.optim.SGD(trained, lr=0.0)
        self._port, findings, self._optimizer = make_parts(surrogate, None, optimizer=optimizer, options=options)
        self.runner = Runner(
            name_pass("backward", port),
            self._port,
            findings,
            optimizer=self._optimizer,
            owner="ported",
            random_states={},
            has_own_weights=True,
        )

    def run(self, call: HostCall, cotangents: Sequence[torch.Tensor]) -> Dict[str, torch.Tensor]:
        """Return the gradients by the names of the surrogate's parameters."""
        batch = (tuple(cotangents), *call.args)
        self._copy_weights(call.state)
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

    def _copy_weights(self, state: Mapping[str, torch.Tensor]) -> None:
        """Bring the weights up to date if the host has changed its own since; the call sends what was written to."""
        now = {**{host.name: host.tensor for host in host_tensors(self._model)}, **state}
        with torch.no_grad():
            for name, view in self._views:
                if not are_same_bytes(view, now[name].detach()):
                    view.copy_(now[name])


class _Surrogate(nn.Module):
    """A copy of a model with the loss `sum(output x cotangent)`, whose gradients are those of the outputs.

    `probes` are zeros that are added to tensors of the batch that need a gradient: the gradient of a probe is that of
    the tensor, for which a device has no name. `outputs` are the numbers of those that have a cotangent.
    """

    def __init__(self, model: nn.Module, call: HostCall, *, outputs: Tuple[int, ...]) -> None:
        super().__init__()
        self.model = copy_model(model)
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
