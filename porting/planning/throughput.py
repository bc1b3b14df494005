"""This module estimates how many samples a second a step trains, from its operations and the machine's figures.

Plans use it, and show where more replicas stop to pay. It says what the slowest IPU does in one optimizer step:

    step = (accumulation + 2 N - 2) x slowest stage + update + gradients between replicas

* A stage computes its operations forward and twice backward, and those once more whose results are not kept. Products
  of matrices reach 36 % of the peak, convolutions 29 %, and other operators move 5.9 TB/s on a Bow. These shares were
  fitted to 13 published trainings of BERT, ResNet-50 and GPT-2, which all recompute. A product takes no less time than
  its bytes do, and reads its operands again for each part or round in which it is computed.
* N stages fill and drain the pipeline in 2 N - 2 micro-batches (PopART, pipeline.cpp).
* Gradients pass each link twice less one share (ring), at the rate of the slowest link: between pods if replicas are on
  several, and each replica adds a hop. Optimizer state off the chip comes and goes once in each step.
* The host gives no more samples than its links carry with what comes back, or than the loader was measured to give.

The 13 come out between 0.88 and 1.13 of what was published, hence an error of 15 %. Two others do not: PyTorch's ViT-B
of 2021 trained at two thirds of the estimate, and its ResNet-50 on four IPUs at three quarters.
"""

from __future__ import annotations

import functools
import math
import statistics
from dataclasses import dataclass
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..machines import Machine
from .memory_model import Layout, StageMemory, count_product_rounds
from .step_memory import Operation, StepMemory, count_device_bytes

__all__ = ["Forecast", "Pace", "Scale", "Seconds", "count_rounds", "time_ipus", "time_operators"]

_ERROR = 0.15
_MOST_CHIPS = 256
_PASSES = {"training": 3, "inference": 1}
_SHARE_OF_PEAK = 0.36
_SHARE_OF_CONVOLUTIONS = 0.293
# bytes that other operators read and make, for each operation of the peak: 5.9 TB/s on a Bow, of 47 at best
_BYTES_PER_FLOP = 1 / 60
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

    def count_hours(self, num_samples: float, quantile: float = 0.5) -> float:
        """Return the hours that so many samples take, or those within which a share `quantile` of trainings ends.

        The logarithm of the error is taken to be normal.
        """
        factor = (1 + _ERROR) ** statistics.NormalDist().inv_cdf(quantile)
        return factor * num_samples / self.samples_per_second / 3600

    def find_share(self, num_samples: float, hours: float) -> float:
        """Return the share of trainings on so many samples that end within so many hours."""
        return statistics.NormalDist().cdf(math.log(hours / self.count_hours(num_samples)) / math.log(1 + _ERROR))

    def compare(self, other: Forecast) -> Tuple[float, float]:
        """Return how much more samples a second `other` trains, as 0.1 for 10 % more, and the standard error of that.

        What both spend alike is off alike: an error is of the parts whose share of the time has changed.
        """
        ratio = other.samples_per_second / self.samples_per_second
        moved = (other._shares.get(part, 0.0) - self._shares.get(part, 0.0) for part in {*self.seconds, "host"})
        return ratio - 1, _ERROR * ratio * math.hypot(*moved)

    @property
    def _shares(self) -> Dict[str, float]:
        """The share of each part of a step's time: all of it the host's, where that binds."""
        if self.limit == "host":
            return {"host": 1.0}
        whole = sum(self.seconds.values())
        return {part: seconds / whole for part, seconds in self.seconds.items()}


@dataclass(frozen=True)
class Scale:
    """The speed on so many replicas, and its share of that of as many single ones."""

    replicas: int
    samples_per_second: float
    share: float


class Seconds(NamedTuple):
    """What one micro-batch takes on an IPU: both passes, what is computed again, and operands that are read again."""

    compute: float
    recomputation: float
    overhead: float


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
        slowest, trains = max(self._times, key=sum), step.mode == "training"
        seconds = {
            "compute": rounds * slowest.compute,
            "recomputation": rounds * slowest.recomputation,
            "overhead": rounds * (slowest.overhead + _LOOP_SECONDS),
            "update": _time_update(step, layout, machine) if trains else 0.0,
            "links": _time_reduction(self.memories, machine, count, layout.num_ipus) if trains else 0.0,
        }
        samples = int(step.micro_batch * layout.scale * self.accumulation) * count
        rate = samples / sum(seconds.values())
        limit = max(seconds, key=lambda name: seconds[name])
        hosts = max(1, count * layout.num_ipus // machine.links.chips_per_host_link)
        carried = hosts * machine.links.host_rate / max(1.0, _count_host_bytes(step, layout, self.accumulation))
        bound = min(carried, self.loader_rate or math.inf)
        if bound < rate:
            rate, limit = bound, "host"
        return Forecast(
            samples_per_second=rate,
            replicas=count,
            efficiency=self.accumulation / rounds,
            balance=sum(map(sum, self._times)) / len(self._times) / sum(slowest),
            limit=limit,
            seconds=seconds,
            samples_per_step=samples,
        )

    @functools.cached_property
    def _times(self) -> List[Seconds]:
        return time_ipus(self.step, self.layout, self.machine)


def count_rounds(step: StepMemory, accumulation: int, num_stages: int) -> int:
    """Return the rounds of a pipeline in one optimizer step: those of its micro-batches, and those that fill it."""
    return accumulation + (2 if step.mode == "training" else 1) * (num_stages - 1)


def time_ipus(step: StepMemory, layout: Layout, machine: Machine) -> List[Seconds]:
    """Return the seconds of each IPU for one micro-batch, both ways in training."""
    times = time_operators(step, layout, machine)
    found = [Seconds(0.0, 0.0, 0.0)] * layout.num_ipus
    for ipu, first, end in layout.iter_stages(len(step.operations)):
        found[ipu] = Seconds(*map(sum, zip(found[ipu], *times[first:end])))
    return found


def time_operators(step: StepMemory, layout: Layout, machine: Machine) -> List[Seconds]:
    """Return the seconds of each operator for one micro-batch, both ways in training."""
    sizes = {info.name: count_device_bytes(info.shape, info.dtype) for info in step.parameters}
    again = step.mode == "training" and layout.recomputes
    marks, passes = frozenset(layout.marks), _PASSES[step.mode]
    found = []
    for ipu, first, end in layout.iter_stages(len(step.operations)):
        for position in range(first, end):
            operation = step.operations[position]
            seconds, reads = _time_operation(operation, layout, machine, sizes=sizes, ipu=ipu)
            repeated = seconds if again and position not in marks else 0.0
            found.append(Seconds(passes * seconds, repeated, passes * reads))
    return found


def _time_operation(
    operation: Operation, layout: Layout, machine: Machine, *, sizes: Mapping[str, int], ipu: int
) -> Tuple[float, float]:
    """Return the seconds of one pass through an operator, and those in which it reads its operands again."""
    chip = machine.chip
    rate = _BYTES_PER_FLOP * chip.float16_flops / (0.5 if layout.halves and operation.is_float else 1.0)
    weights = sum(sizes[name] for name in operation.parameters)
    values = layout.scale * max(0, operation.operand_bytes - weights)
    moved = (weights + values + layout.scale * operation.result_bytes) / rate
    if not operation.is_product:
        # a lookup reads the rows that it takes, and no other
        lookup = values + 2 * layout.scale * operation.result_bytes
        return min(moved, lookup / rate), 0.0
    peak = chip.float16_flops if layout.halves or operation.is_half else chip.float32_flops
    share = _SHARE_OF_CONVOLUTIONS if operation.is_convolution else _SHARE_OF_PEAK
    again = (count_product_rounds(operation, layout, ipu) - 1) * values / rate
    return max(layout.scale * operation.flops / (share * peak), moved), again


def _count_host_bytes(step: StepMemory, layout: Layout, accumulation: int) -> float:
    """Return the bytes of a sample that come from the host and go back to it, by the output mode."""
    share = {"all": 1.0, "every_n": 1 / layout.outputs_every}.get(layout.outputs, 1 / accumulation)
    returned = 1.0 if step.mode == "inference" else share
    return (step.input_bytes + returned * step.output_bytes) / step.micro_batch


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
