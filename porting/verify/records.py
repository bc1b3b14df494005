"""Record losses and learning rates of every step of a training, and sketches of tensors at some of them.

Proofs compare these records.
"""

from __future__ import annotations

import base64
import hashlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Mapping, Optional, Set, Tuple

import torch
from torch import nn

from porting.comparison.sketches import Sketch, make_sketch
from porting.observe.watcher import StepState
from porting.verify.loop_parts import LoopState
from porting.verify.optimizer_settings import Settings

__all__ = ["KINDS", "Record", "Sketches", "find_phase", "list_kept_steps", "name_optimizer_state", "sketch_all"]

KINDS = (
    "samples",
    "input",
    "output",
    "loss",
    "gradient",
    "learning rate",
    "setting",
    "update",
    "optimizer state",
    "buffer",
    "parameter",
    "loop state",
    "loss curve",
    "evaluation",
    "reloading",
    "resuming",
    "fresh process",
)
"""What is compared, in the order in which a fault spreads."""

Sketches = Dict[str, Sketch]

# words in the name of a kind, and the phase that it belongs to; of others it is the update
_PHASES = {
    "rate": "schedule",
    "eval": "evaluation",
    "sample": "data",
    "load": "checkpoint",
    "resum": "checkpoint",
    "loop": "loop",
    "output": "forward",
    "loss": "loss",
    "gradient": "backward",
    "buffer": "buffer",
}

_FIRST_STEPS = (1, 2, 3, 4, 5, 7)


@dataclass
class Record:
    """What a run leaves behind.

    `losses` are by optimizer step, counted from 1, those of its micro-batches that are known; `rates` the learning
    rates of its parameter groups, `settings` all settings of its parameters, which are not written. `sketches` are by
    kind and step; step 0 is the start. `ended_by` is what cut the run off. `differences` are the updates, once somebody
    has asked for them. With `is_exact`, `digests` tell all bits of the tensors; they are not written.
    """

    losses: Dict[int, List[float]] = field(default_factory=dict)
    rates: Dict[int, List[float]] = field(default_factory=dict)
    sketches: Dict[Tuple[str, int], Sketches] = field(default_factory=dict)
    ended_by: str = ""
    settings: Dict[int, Settings] = field(default_factory=dict)
    differences: Dict[Tuple[str, int], Sketches] = field(default_factory=dict, repr=False)
    is_exact: bool = False
    digests: Dict[Tuple[str, int], Dict[str, str]] = field(default_factory=dict, repr=False)

    @property
    def num_steps(self) -> int:
        """Optimizer steps that were made."""
        return max(self.losses, default=0)

    @contextmanager
    def noting_its_end(self) -> Iterator[None]:
        """Note an error, or the user who stops the run, as its end; before the first step is made, it comes through."""
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            if not self.losses:
                raise
            self.ended_by = ": ".join(filter(None, (type(error).__name__, str(error))))

    def keep(self, kind: str, step: int, tensors: Mapping[str, torch.Tensor]) -> None:
        """Keep sketches of tensors."""
        self.sketches[kind, step] = sketch_all(tensors)
        if self.is_exact:
            self.digests[kind, step] = {name: _make_digest(tensor) for name, tensor in tensors.items()}

    def keep_state(
        self,
        step: int,
        model: nn.Module,
        optimizer_state: Mapping[str, torch.Tensor],
        loop_state: Optional[LoopState] = None,
    ) -> None:
        """Keep what a step has left behind: parameters, buffers, the optimizer's state and the loop's own."""
        if loop_state is not None:
            self.keep("loop state", step, loop_state.name_tensors())
        self.keep("parameter", step, dict(model.named_parameters()))
        self.keep("buffer", step, dict(model.named_buffers()))
        self.keep("optimizer state", step, optimizer_state)

    def list_steps(self, kind: str) -> List[int]:
        """List the steps that have sketches of a kind."""
        return sorted(step for found, step in self.sketches if found == kind)

    def mean_loss(self, step: int) -> Optional[float]:
        """Return the mean of a step's losses; None where none are known."""
        losses = self.losses.get(step)
        return sum(losses) / len(losses) if losses else None

    def find(self, kind: str, step: int) -> Sketches:
        """Return the sketches of a kind; an update is the difference of the parameters to those kept before."""
        if kind != "update":
            return self.sketches.get((kind, step), {})
        if (kind, step) not in self.differences:
            before = [earlier for earlier in self.list_steps("parameter") if earlier < step]
            start = self.sketches["parameter", before[-1]] if before else {}
            pairs = ((name, new, start.get(name)) for name, new in self.sketches.get(("parameter", step), {}).items())
            self.differences[kind, step] = {
                name: new.minus(old) for name, new, old in pairs if old is not None and old.shape == new.shape
            }
        return self.differences[kind, step]

    def to_dict(self) -> Dict[str, Any]:
        """Return the record as plain values; the sketches as base64 of little-endian numbers in float64."""
        return {
            "losses": {str(step): losses for step, losses in self.losses.items()},
            "rates": {str(step): rates for step, rates in self.rates.items()},
            "sketches": [
                {"kind": kind, "step": step, "tensors": {name: _write_sketch(one) for name, one in sketches.items()}}
                for (kind, step), sketches in self.sketches.items()
            ],
            "ended_by": self.ended_by,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Record:
        """Read what `to_dict` gave."""
        return cls(
            {int(step): list(losses) for step, losses in values["losses"].items()},
            {int(step): list(rates) for step, rates in values["rates"].items()},
            {
                (item["kind"], item["step"]): {name: _read_sketch(one) for name, one in item["tensors"].items()}
                for item in values["sketches"]
            },
            values["ended_by"],
        )


def find_phase(kind: str) -> str:
    """Return the phase of a step, or around it, that a kind belongs to.

    >>> find_phase("learning rate"), find_phase("parameter")
    ('schedule', 'update')
    """
    return next((phase for word, phase in _PHASES.items() if word in kind), "update")


def sketch_all(tensors: Mapping[str, torch.Tensor]) -> Sketches:
    """Make a sketch of each tensor, but for those without elements."""
    return {name: make_sketch(tensor) for name, tensor in tensors.items() if tensor.numel()}


def _make_digest(tensor: torch.Tensor) -> str:
    """Return what tells all bits of a tensor, its shape and its type."""
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    form = f"{tensor.dtype} {list(tensor.shape)} "
    return form + hashlib.blake2b(flat.view(torch.uint8).numpy().tobytes(), digest_size=16).hexdigest()


def list_kept_steps(
    num_steps: int, *, steps_per_call: int = 1, is_each_kept: bool = False
) -> Tuple[Set[int], Set[int]]:
    """Return the steps that leave sketches of their state, each the last one of a call, and those of their gradients.

    >>> [sorted(steps) for steps in list_kept_steps(9, steps_per_call=3)]
    [[3, 6, 9], [1, 2, 3, 4, 5, 6, 7, 9]]
    """
    wanted = [*_FIRST_STEPS, *(factor * 10**power for power in range(1, 7) for factor in (1, 1.5, 2, 3, 5, 7))]
    some = {int(step) for step in wanted if step <= num_steps} | {num_steps}
    some = set(range(1, num_steps + 1)) if is_each_kept else some
    ends = {-(-step // steps_per_call) * steps_per_call for step in some}
    return ends, some | ends


def name_optimizer_state(
    state: Mapping[str, Any], optimizer: torch.optim.Optimizer, model: nn.Module
) -> Dict[str, torch.Tensor]:
    """Name the tensors of an optimizer's state after the parameters of `model` that are in its groups."""
    # it counts, and reads the count nowhere; a device does not count
    idle = "step" if isinstance(optimizer, torch.optim.RMSprop) else ""
    return {
        f"{slot} of {name}": value
        for name, slots in StepState.of(model, optimizer, state).slots.items()
        for slot, value in slots.items()
        if isinstance(value, torch.Tensor) and slot != idle
    }


def _write_sketch(sketch: Sketch) -> Dict[str, Any]:
    return {
        "shape": list(sketch.shape),
        "values": base64.b64encode(sketch.values.numpy().astype("<f8").tobytes()).decode(),
        "norm": sketch.norm,
        "largest": sketch.largest,
        "num_not_finite": sketch.num_not_finite,
        "kind": sketch.kind,
    }


def _read_sketch(values: Mapping[str, Any]) -> Sketch:
    numbers = torch.frombuffer(bytearray(base64.b64decode(values["values"])), dtype=torch.float64)
    return Sketch(
        tuple(values["shape"]), numbers, values["norm"], values["largest"], values["num_not_finite"], values["kind"]
    )
