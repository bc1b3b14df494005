"""This module estimates how many samples a second a step trains, from its operations and the machine's figures.

Plans use it, and show where more replicas stop to pay. It says what the slowest IPU does in one optimizer step:

    step = (accumulation + 2 N - 2) x slowest stage + update + gradients between replicas

* A stage computes its operations three times, forward and twice backward. Products of matrices reach 27 % of the peak,
  convolutions 22 %, and other operators move 4.4 TB/s on a Bow. These shares were fitted to 13 published trainings of
  BERT, ResNet-50 and GPT-2, which all recompute, so that recomputation is in them.
* N stages fill and drain the pipeline in 2 N - 2 micro-batches (PopART, pipeline.cpp).
* Gradients pass each link twice less one share (ring), at the rate of the slowest link: between pods if replicas are on
  several, and each replica adds a hop. Optimizer state off the chip comes and goes once in each step.
* The host gives no more samples than its links carry, or than the loader was measured to give.

The 13 come out between 0.88 and 1.14 of what was published, hence an error of 15 %. Two others do not: PyTorch's ViT-B
of 2021 trained at two thirds of the estimate, and its ResNet-50 on four IPUs at three quarters.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence

from ..machines import Machine
from .memory_model import Layout, StageMemory
from .step_memory import Operation, StepMemory

__all__ = ["Forecast", "Pace", "Scale", "count_rounds"]

_ERROR = 0.15
_MOST_CHIPS = 256
_PASSES = {"training": 3, "inference": 1}
_SHARE_OF_PEAK = 0.27
_SHARE_OF_CONVOLUTIONS = 0.22
# bytes that other operators read and make, for each operation of the peak: 4.4 TB/s on a Bow, of 47 at best
_BYTES_PER_FLOP = 1 / 80
_LOOP_SECONDS = 20e-6
_HOP_SECONDS = 20e-6


@dataclass(frozen=True)
class Forecast:
    """An estimate of the speed of one layout on a machine, in samples a second, uncertain by `low` to `high`.

    `efficiency` is the share of a pipeline's time in which it is full, and `balance` how much of the slowest IPU's time
    the IPUs work on average. `limit` names what binds: "compute", "update", "links" or "host". `seconds` has the parts
    of one optimizer step.
    """

    samples_per_second: float
    replicas: int
    efficiency: float
    balance: float
    limit: str
    seconds: Dict[str, float]
    samples_per_step: int

    @property
    def low(self) -> float:
        """The least that is likely."""
        return self.samples_per_second * (1 - _ERROR)

    @property
    def high(self) -> float:
        """The most that is likely."""
        return self.samples_per_second * (1 + _ERROR)

    def count_hours(self, num_samples: float) -> float:
        """Return the hours that so many samples take."""
        return num_samples / self.samples_per_second / 3600


@dataclass(frozen=True)
class Scale:
    """The speed on so many replicas, and its share of that of as many single ones."""

    replicas: int
    samples_per_second: float
    share: float


@dataclass(frozen=True)
class Pace:
    """What a speed follows from: `step` as `layout` has it on `machine`, whose operators are timed once.

    `memories` are those of the IPUs, and `loader_rate` the samples a second that the user's loader gives.
    """

    step: StepMemory
    layout: Layout
    memories: Sequence[StageMemory]
    machine: Machine
    accumulation: int
    loader_rate: Optional[float] = None

    def list_scaling(self) -> List[Scale]:
        """Forecast the speed on 1, 2, 4, ... replicas up to 256 chips, and further where the machine has more."""
        most = max(_MOST_CHIPS, self.machine.num_chips) // self.layout.num_ipus
        counts = [1 << power for power in range(most.bit_length())]
        speeds = [self.forecast(count).samples_per_second for count in counts]
        return [Scale(count, speed, speed / (count * speeds[0])) for count, speed in zip(counts, speeds)]

    def forecast(self, replicas: Optional[int] = None) -> Forecast:
        """Estimate the speed on all replicas that the machine has room for, or on `replicas`."""
        step, layout, machine = self.step, self.layout, self.machine
        count = replicas or max(1, machine.num_chips // layout.num_ipus)
        rounds = count_rounds(step, self.accumulation, len(layout.begins))
        slowest, trains = max(self._times), step.mode == "training"
        seconds = {
            "compute": rounds * (slowest + _LOOP_SECONDS),
            "update": _time_update(step, layout, machine) if trains else 0.0,
            "links": _time_reduction(self.memories, machine, count, layout.num_ipus) if trains else 0.0,
        }
        samples = int(step.micro_batch * layout.scale * self.accumulation) * count
        rate = samples / sum(seconds.values())
        limit = max(seconds, key=lambda name: seconds[name])
        hosts = max(1, count * layout.num_ipus // machine.links.chips_per_host_link)
        host_rate = hosts * machine.links.host_rate / max(1.0, step.input_bytes / step.micro_batch)
        bound = min(host_rate, self.loader_rate or math.inf)
        if bound < rate:
            rate, limit = bound, "host"
        return Forecast(
            samples_per_second=rate,
            replicas=count,
            efficiency=self.accumulation / rounds,
            balance=sum(self._times) / len(self._times) / slowest,
            limit=limit,
            seconds=seconds,
            samples_per_step=samples,
        )

    @functools.cached_property
    def _times(self) -> List[float]:
        return _time_ipus(self.step, self.layout, self.machine)


def count_rounds(step: StepMemory, accumulation: int, num_stages: int) -> int:
    """Return the rounds of a pipeline in one optimizer step: those of its micro-batches, and those that fill it."""
    return accumulation + (2 if step.mode == "training" else 1) * (num_stages - 1)


def _time_ipus(step: StepMemory, layout: Layout, machine: Machine) -> List[float]:
    """Return the seconds in which each IPU computes its stages for one micro-batch, both ways in training."""
    times = [0.0] * layout.num_ipus
    for ipu, first, end in layout.iter_stages(len(step.operations)):
        times[ipu] += sum(_time_operation(operation, layout, machine) for operation in step.operations[first:end])
    return [_PASSES[step.mode] * seconds for seconds in times]


def _time_operation(operation: Operation, layout: Layout, machine: Machine) -> float:
    chip = machine.chip
    peak = chip.float16_flops if layout.halves or operation.is_half else chip.float32_flops
    if operation.is_product:
        share = _SHARE_OF_CONVOLUTIONS if operation.is_convolution else _SHARE_OF_PEAK
        return layout.scale * operation.flops / (share * peak)
    moved = operation.operand_bytes + operation.result_bytes
    return layout.scale * moved / (_BYTES_PER_FLOP * chip.float16_flops)


def _time_update(step: StepMemory, layout: Layout, machine: Machine) -> float:
    """Return the seconds of the optimizer: its state is read and written, on the chip or from streaming memory."""
    if not layout.state_off_chip:
        return 0.0
    num_weights = sum(math.prod(info.shape) for info in step.parameters if info.requires_grad) / layout.num_ipus
    return 2 * num_weights * layout.state_bytes / layout.state_shards / machine.links.streaming_rate


def _time_reduction(memories: Sequence[StageMemory], machine: Machine, replicas: int, num_ipus: int) -> float:
    """Return the seconds in which gradients pass the links between replicas: a ring, each IPU with its own weights."""
    if replicas == 1:
        return 0.0
    links = machine.links
    is_in_pod = not links.chips_per_pod or replicas * num_ipus <= links.chips_per_pod
    # a chip shares its links among the neighbours in both directions of the ring
    rate = links.chip_rate / 2 if is_in_pod else links.pod_rate
    gradients = max(memory.accumulator_bytes or memory.weight_bytes for memory in memories)
    return 2 * (replicas - 1) / replicas * gradients / rate + replicas * _HOP_SECONDS
