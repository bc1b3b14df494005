"""Run a port for a proof: record losses, learning rates as the device had them, and sketches of all that it keeps.

`verify` and `compare_training` use it.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
from torch import nn

from porting.api.ported_model import PortedModel
from porting.options import PortOptions
from porting.support.host_state import keep_streams, seed_streams
from porting.verify.calls import Calls
from porting.verify.loop_parts import LoopWork
from porting.verify.optimizer_settings import Settings, read_settings
from porting.verify.plain_runs import join_named, name_outputs
from porting.verify.records import Record, list_kept_steps, name_optimizer_state

__all__ = [
    "PortedTraining",
    "can_match_streams",
    "end_call",
    "find_stream",
    "name_ported_state",
    "record_port",
    "run_ported",
]


@dataclass(frozen=True)
class PortedTraining:
    """What a loop trains with a port.

    `scheduler` is stepped as `schedule_every` says, after each "call" unless it says "step" or "epoch"; without one,
    those that were connected by `ported.scheduler(...)` are. `batches` are the combined batches, or the loader, that
    the loop takes; without them, those of the plain side. `call` is what the loop does with one: a function of the port
    and a batch's arguments that returns what the port's call returned. `each_epoch` and `also` are those of
    `PlainTraining`, whose own are taken by default; they get the port's model and the user's optimizer. `save(port,
    path)` writes a file of the user's own, and `load(port, path)` reads it; without them the port's checkpoints are.
    """

    model: Any
    scheduler: Any = None
    batches: Any = None
    call: Optional[Callable[..., Any]] = None
    schedule_every: str = "call"
    each_epoch: Optional[Callable[[nn.Module, Any, int], None]] = None
    also: Optional[Callable[[nn.Module], Any]] = None
    save: Optional[Callable[[Any, Path], None]] = None
    load: Optional[Callable[[Any, Path], None]] = None

    @property
    def schedulers(self) -> List[Any]:
        """The schedules that the loop steps."""
        return [self.scheduler] if self.scheduler is not None else self.model.port_optimizer.list_schedulers([])

    def list_work(self) -> LoopWork:
        """Return what the loop does besides its calls."""
        optimizer, own = self.model.port_optimizer.require_users(), (self.schedule_every, self.each_epoch, self.also)
        return LoopWork(self.model.model, optimizer, self.schedulers, *own)


def can_match_streams(model: PortedModel) -> bool:
    """Tell whether a port draws the random numbers that plain PyTorch draws: the simulator has torch's generator."""
    return bool(model.port.backend.is_simulator)


def find_stream(model: PortedModel) -> Optional[torch.Tensor]:
    """Return the state of the random stream that a port will draw from, as torch's CPU generator has it.

    None where it begins with the host's, which is so for a fresh port without a seed, or where it cannot be known.
    """
    words = model.device_executor.rng_state if model.device_executor is not None else None
    if words is not None and len(words) > 1 and can_match_streams(model):
        return torch.tensor(list(words[1:]), dtype=torch.int64).view(torch.uint8).clone()
    if model.options.seed is not None:
        return torch.Generator().manual_seed(model.options.seed).get_state()
    return None


def run_ported(ported: PortedTraining, calls: Calls, *, seed: int) -> Record:
    """Train the port with the batches of `calls` and return what it leaves.

    An error, or the user who stops it, ends the run and is told by the record; before the first call is made, it comes
    through.
    """
    record = Record()
    model = ported.model
    with keep_streams():
        record.keep_state(0, model.model, {})
        seed_streams(seed)
        start = torch.get_rng_state()
        model.compile(*calls[0][0], **calls[0][1])
        seed_streams(seed)
        torch.set_rng_state(start)
        with record.noting_its_end():
            record_port(ported, calls, record)
    return record


def record_port(ported: PortedTraining, calls: Calls, record: Record, *, is_each_kept: bool = False) -> None:
    """Make all calls and keep what they leave, of some or of each."""
    model = ported.model
    options = model.options
    per_call = options.device_iterations
    kept, with_gradients = list_kept_steps(len(calls) * per_call, steps_per_call=per_call, is_each_kept=is_each_kept)
    with_gradients = with_gradients if options.keep_gradients else set()
    step, work = 0, ported.list_work()
    with _watch_settings(model) as settings:
        for place, batch in enumerate(calls):
            args, kwargs = batch
            returned = make_call(ported, args, kwargs)
            losses = model.loss_of(returned).detach().double().flatten().tolist()
            _note_losses(record, losses, step, options)
            for number in range(per_call):
                rates, known = settings[-1] if settings else ([], {})
                record.rates[step + number + 1] = rates
                record.settings[step + number + 1] = known
                if step + number + 1 in with_gradients:
                    record.keep("gradient", step + number + 1, model.gradients(number))
            outputs = find_outputs(model, returned) if not step else None
            if outputs is not None:
                record.keep("output", 1, outputs)
            step += per_call
            work.update_state()
            if step in kept:
                record.keep_state(step, model.model, name_ported_state(model), work.state)
                record.keep("input", step, calls.collect_changed(place, batch))
            end_call(work, losses, options, ends_epoch=calls.ends_epoch(place))


def end_call(work: LoopWork, losses: Sequence[float], options: PortOptions, *, ends_epoch: bool) -> None:
    """Do what follows a call whose losses are known, of each of its steps those that are."""
    size = len(losses) // options.device_iterations
    for number in range(options.device_iterations):
        own = losses[number * size : (number + 1) * size] or losses
        work.end_step(sum(own) / len(own))
    work.end_call(ends_epoch=ends_epoch)


def make_call(ported: PortedTraining, args: Sequence[Any], kwargs: Dict[str, Any]) -> Any:
    """Make a training call as the user's loop does."""
    if ported.call is not None:
        return ported.call(ported.model, *args, **kwargs)
    return ported.model(*args, **kwargs)


def _note_losses(record: Record, losses: List[float], step: int, options: PortOptions) -> None:
    """Keep the losses of a call by step; those of some micro-batches alone belong to the last one."""
    per_call, count = options.device_iterations, options.micro_batches_per_call
    for number in range(1, per_call + 1):
        record.losses[step + number] = []
    if len(losses) == count:
        size = count // per_call
        for number in range(per_call):
            record.losses[step + number + 1] = losses[number * size : (number + 1) * size]
    elif options.output_mode in ("default", "final"):
        record.losses[step + per_call] = losses


def name_ported_state(model: PortedModel) -> Dict[str, torch.Tensor]:
    """Return the state of a port's optimizer as torch would have it, by the names of its slots and parameters."""
    return name_optimizer_state(model.optimizer_state_dict(), model.port_optimizer.require_users(), model.model)


def find_outputs(model: PortedModel, returned: object) -> Optional[Dict[str, torch.Tensor]]:
    """Find what the model returned in what a call of the port returned, of the call's first step.

    None where the port does not return all of it.
    """
    options, output_of = model.options, model.port.wrapped.output_of
    if output_of is None or options.output_mode != "all" and options.micro_batches_per_call > 1:
        return None
    named = name_outputs(output_of(returned))
    return join_named([{name: _take_first_step(tensor, options) for name, tensor in named}])


def _take_first_step(tensor: torch.Tensor, options: PortOptions) -> torch.Tensor:
    return tensor.chunk(options.device_iterations)[0].detach() if tensor.dim() else tensor.detach()


@contextmanager
def _watch_settings(model: PortedModel) -> Iterator[List[Tuple[List[float], Settings]]]:
    """List the learning rates and all settings that the device had in each training call.

    They are what the executor was handed last; what the optimizer on the host says need not be what the device has.
    """
    found: List[Tuple[List[float], Settings]] = []
    device: List[Tuple[List[float], Settings]] = []
    watched: List[Any] = []

    def watch_executor() -> None:
        executor = model.device_executor
        hand_over = executor.setOptimizer

        def note_settings(optimizer: torch.optim.Optimizer) -> Any:
            result = hand_over(optimizer)
            device[:] = [_read_device(model, optimizer)]
            return result

        executor.setOptimizer = note_settings
        device[:] = [_read_device(model, model.optimizer)]
        watched.append((executor, hand_over))

    def note_call(_model: object, _args: Tuple[Any, ...], _returned: object) -> None:
        if model.training:
            # a loop may have it compiled anew, with the optimizer as it is then
            if not watched or watched[-1][0] is not model.device_executor:
                watch_executor()
            found.append(device[0])

    if model.device_executor is not None:
        watch_executor()
    hook = model.register_forward_hook(note_call)
    try:
        yield found
    finally:
        hook.remove()
        for executor, hand_over in watched:
            executor.setOptimizer = hand_over


def _read_device(model: PortedModel, optimizer: torch.optim.Optimizer) -> Tuple[List[float], Settings]:
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    return rates, read_settings(optimizer, model.port.wrapped.named_parameters())
