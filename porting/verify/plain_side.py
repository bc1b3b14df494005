"""Run the plain side of a proof: the loop that a port is compared with, and runs that say how far rounding leads.

`verify` makes a `PlainSide`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Callable, NamedTuple, Optional, Sequence

import torch
from torch import nn

from porting.comparison.sketches import distance_of_sketches
from porting.options import PortOptions
from porting.support.host_state import keep_streams, seed_streams
from porting.torch_insides.modules import BATCH_NORMS
from porting.verify.calls import Calls
from porting.verify.half_rounding import HalfRule
from porting.verify.judgement import Judgement, find_first, list_outside
from porting.verify.noise_band import describe_repetition
from porting.verify.plain_runs import PLAIN, Perturbation, copy_training, join_outputs, run_plain, watch_outputs
from porting.verify.plain_training import Grouping, MicroBatch, PlainRun, PlainTraining
from porting.verify.records import Record, Sketches, sketch_all
from porting.verify.runs import Runs

__all__ = ["HOPELESS", "Comparison", "PlainSide", "choose_comparison", "look_closer", "round_again"]

# relative: what a sum of micro-batches may differ by from one large batch, and what other statistics are far above
_SAME = 1e-3
# Beyond it the float64 run would need more memory than a proof may.
_MOST_DOUBLED = 128 << 20
# Of the first loss: what a run that computes the same may differ by.
_SAME_LOSS = 1e-2
HOPELESS = (1e5, 1e5)
"""How many times its band something is off that no rounding explains, for each further run."""

# of a few runs none may do what many do
_HOPELESS_IN_HALF = tuple(300.0 / number for number in range(1, 9))
_UNITS = {
    "float32": torch.finfo(torch.float32).eps,
    "float16": torch.finfo(torch.float16).eps,
    "mixed": torch.finfo(torch.float16).eps,
    "bfloat16": torch.finfo(torch.bfloat16).eps,
}
_NUM_REPEATED_CALLS = 2
_CHANGED_UNITS, _RESCUE_UNITS = 2.0, 4.0
# of a run that is rounded to half precision, as a multiple of a plain one
_HALF_COST = 3.0
_NUM_ROUNDED_CALLS, _NUM_HALF_RUNS = 2, 3


class Comparison(NamedTuple):
    """The plain side of a proof: the training, how its steps are made, whether it draws numbers, and why in words."""

    training: PlainTraining
    grouping: Grouping
    draws: bool
    text: str


class _Tried(NamedTuple):
    """One step: the mean of its losses, its gradients and outputs, and whether random numbers were drawn."""

    loss: float
    gradients: Sketches
    outputs: Sketches
    draws: bool


def choose_comparison(training: PlainTraining, batch: MicroBatch, options: PortOptions, *, seed: int) -> Comparison:
    """Find out whether a step over one large batch is what the micro-batches of a step stand for.

    It is tried with a step of each: equal gradients and outputs mean that no module and no loss looks at more than one
    sample. A loss that is a sum is told by that, too.
    """
    grouping = Grouping.of(options)
    count = grouping.micro_batches_per_step
    parts = _try_step(training, batch, grouping, seed=seed)
    if count == 1:
        return Comparison(training, grouping, parts.draws, "the same batch a step")
    words = f"{count} micro-batches a step, one after the other in plain PyTorch"
    if parts.draws:
        return Comparison(training, grouping, True, f"{words}: random numbers are drawn for each")
    if options.precision != "float32":
        return Comparison(training, grouping, False, f"{words}, each rounded to half precision as the device does it")
    if options.output_mode != "all":
        return Comparison(training, grouping, False, f"{words}: the port returns the losses of some alone")
    whole = _try_step(training, batch, replace(grouping, is_large=True), seed=seed)
    loss = parts.loss
    if training.accumulated == "mean" and abs(whole.loss - count * loss) < abs(whole.loss - loss):
        training, loss = replace(training, accumulated="sum"), count * loss
        parts = _try_step(training, batch, grouping, seed=seed)
    is_same = abs(whole.loss - loss) <= _SAME * abs(loss) and _are_same(whole.gradients, parts.gradients)
    if is_same and _are_same(whole.outputs, parts.outputs):
        large = replace(grouping, is_large=True)
        return Comparison(training, large, False, f"one large batch a step, which {count} micro-batches stand for")
    why = "the model returns something else than a row for each sample" if is_same else _say_why(training.model)
    return Comparison(training, grouping, False, f"{words}: {why}")


def _try_step(training: PlainTraining, batch: MicroBatch, grouping: Grouping, *, seed: int) -> _Tried:
    """Make one step with a copy; nothing else changes."""
    with keep_streams():
        own = copy_training(training)
        seed_streams(seed)
        start, found = torch.get_rng_state(), {}
        run = PlainRun(own, grouping.num_buffers, start)
        with watch_outputs(own.model) as outputs:
            made = run.step(grouping.cut(batch)[0], look=lambda gradients: found.update(sketch_all(gradients)))
    losses = [float(loss.double().mean()) for loss in made.losses]
    draws = not torch.equal(start, run.random_state)
    return _Tried(sum(losses) / len(losses), found, sketch_all(join_outputs(outputs)), draws)


def _are_same(one: Sketches, other: Sketches) -> bool:
    if {name: one[name].shape for name in one} != {name: other[name].shape for name in other}:
        return False
    size = sum(sketch.norm**2 for sketch in one.values()) ** 0.5
    apart = sum(distance_of_sketches(one[name], other[name]) ** 2 for name in one) ** 0.5
    return apart <= _SAME * size


def _say_why(model: nn.Module) -> str:
    norms = [name for name, module in model.named_modules() if isinstance(module, BATCH_NORMS)]
    if norms:
        return f"`{norms[0]}` ({len(norms)} like it) takes its statistics from each micro-batch"
    return "the loss of a large batch is not that of its parts, as with a mean over what is not ignored"


def look_closer(
    judge: Callable[[], Judgement], round_otherwise: Callable[[int, Judgement], bool], hopeless: Sequence[float]
) -> Judgement:
    """Judge two runs, and again with one more that `round_otherwise` makes as long as something is outside.

    There is one for each of `hopeless`: how many times its band something is off that no further run would bring back.
    """
    judgement = judge()
    for number, most in enumerate(hopeless):
        first = find_first(judgement)
        if first is None or first.factor > most or not round_otherwise(number, judgement):
            break
        judgement = judge()
    return judgement


def round_again(seed: int, unit: float) -> Perturbation:
    """Return the run that is made where something is outside: weights and operators are rounded at random."""
    return Perturbation("rounded at random", changes_bits=seed, rounding=seed, size=_RESCUE_UNITS * unit)


class PlainSide:
    """Runs of one plain training: as it is, rounded otherwise, and in more digits.

    They are made in an order in which something can be compared early: `begin` makes the first two, after which the
    port's run can be judged, and `go_on` the others.
    """

    def __init__(
        self,
        runs: Runs,
        comparison: Comparison,
        rule: Optional[HalfRule],
        options: PortOptions,
        *,
        seed: int,
        stream: Optional[torch.Tensor],
        tell: Callable[[str, float], None],
    ) -> None:
        """Begin with no run in `runs`; `rule` is that of a port in half precision, whose `options` are given."""
        self.comparison, self.rule = comparison, rule
        training, grouping, _draws, _text = comparison
        is_sum = grouping.is_large and training.accumulated == "sum"
        self.runs = runs
        runs.unit, runs.stores_half = _UNITS[options.precision], rule is not None and rule.precision == "float16"
        runs.loss_factor = float(grouping.micro_batches_per_step) if is_sum else 1.0
        self._seed, self._stream, self._tell = seed, stream, tell
        self._steps_per_call = options.device_iterations

    def begin(self, calls: Calls) -> Calls:
        """Run plain PyTorch, and once more rounded otherwise; return the calls whose steps were all made."""
        self.runs.plain = self._make_run(calls, replace(PLAIN, rule=self.rule))
        done = calls[: self.runs.plain.num_steps // self._steps_per_call]
        if done and "KeyboardInterrupt" not in self.runs.plain.ended_by:
            self._repeat_plain(done)
            self._round_first(done)
        return done

    def go_on(self, calls: Calls) -> None:
        """Make the runs that measure the noise band more closely."""
        if self.rule is not None:
            for seed in range(2, 1 + _NUM_HALF_RUNS):
                self._try_run(calls, self._round_half(seed))
            self.runs.reference = self._make_run(calls, PLAIN)
            return
        size = sum(weight.numel() * weight.element_size() for weight in self.comparison.training.model.parameters())
        if size <= _MOST_DOUBLED and self._try_run(calls, Perturbation("float64", is_double=True)):
            self.runs.reference = self.runs.others[-1]
        elif size <= _MOST_DOUBLED:
            self.runs.notes.append("there is no float64 reference: the model computes something else in that type")
        else:
            self.runs.notes.append("there is no float64 reference: the model is too large for one")
            self._try_run(calls, replace(self._other_order, permutes=None, changes_bits=2))
        rounded = Perturbation("rounded at random", rounding=1, size=_CHANGED_UNITS * self.runs.unit)
        self._try_run(calls[:_NUM_ROUNDED_CALLS], rounded)

    def judge_closely(self, calls: Calls) -> Judgement:
        """Judge the port's run; look more closely at what is outside: round every operator otherwise, up to there."""

        def round_otherwise(number: int, judgement: Judgement) -> bool:
            last = -(-max(one.step for one in list_outside(judgement)) // self._steps_per_call)
            if self.rule is None:
                return self._try_run(calls[:last], round_again(11 + number, self.runs.unit))
            # a few runs may all miss what only some do, such as a unit that rounding switches on
            if number == 0 and self.runs.reference is not None:
                self.runs.others.append(self.runs.reference)
            return self._try_run(calls[:last], self._round_half(11 + number))

        return look_closer(self.runs.judge, round_otherwise, HOPELESS if self.rule is None else _HOPELESS_IN_HALF)

    # -- runs ----------------------------------------------------------------------------------------------------------

    @property
    def _other_order(self) -> Perturbation:
        # never more threads than the user allows
        num_threads = max(1, torch.get_num_threads() // 2)
        permutes = None if self.comparison.draws else 1
        size = _CHANGED_UNITS * self.runs.unit
        return Perturbation(
            "another order of sums", permutes=permutes, changes_bits=1, num_threads=num_threads, size=size
        )

    def _round_half(self, seed: int) -> Perturbation:
        return Perturbation("half precision, rounded at random", rounding=seed, rule=self.rule)

    def _round_first(self, calls: Calls) -> None:
        if self.rule is not None:
            self._try_run(calls, self._round_half(1))
        elif not self._try_run(calls, self._other_order):
            self._try_run(calls, replace(self._other_order, permutes=None))

    def _make_run(self, calls: Calls, perturbation: Perturbation) -> Record:
        training, grouping, _draws, _text = self.comparison
        factor = _HALF_COST if perturbation.rule is not None else 1.0
        self._tell(f"{len(calls)} calls: {perturbation.name}", factor * len(calls))
        return run_plain(training, calls, grouping, seed=self._seed, perturbation=perturbation, stream=self._stream)

    def _repeat_plain(self, calls: Calls) -> None:
        """Run the first calls again as they are: a training that is another one each time shows nothing."""
        plain = replace(PLAIN, rule=self.rule)
        again = self._make_run(calls[:_NUM_REPEATED_CALLS], plain)
        unequal = describe_repetition(self.runs.plain, again, again.losses)
        if unequal:
            self.runs.missing.append(f"the training is another one each time that plain PyTorch runs it: {unequal}")
            # how far such runs come apart is no fault of the port's
            self.runs.others.append(self._make_run(calls, plain))

    def _try_run(self, calls: Calls, perturbation: Perturbation) -> bool:
        """Make a run that should be the same but for rounding; leave it out if it is not.

        One that the user stops stays, as far as it has come.
        """
        try:
            record = self._make_run(calls, perturbation)
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            return False
        one, other = self.runs.plain.mean_loss(1), record.mean_loss(1)
        assert one is not None
        assert other is not None
        coarse = max(_SAME_LOSS, 16 * self.runs.unit)
        if math.isfinite(one) and not abs(one - other) <= coarse * max(abs(one), 1e-6):
            return False
        self.runs.others.append(record)
        if "KeyboardInterrupt" in record.ended_by:
            raise KeyboardInterrupt
        return True
