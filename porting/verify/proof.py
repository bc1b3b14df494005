"""The course of a proof: plain runs, the port's run, what is left afterwards, and the certificate of it all."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Callable, Dict, List, Optional

import torch

from porting.structure import flatten_tensors
from porting.verify.aftermath import look_after_training
from porting.verify.calls import Calls, MicroBatch
from porting.verify.certificate import (
    Certificate,
    Location,
    PrecisionVerdict,
)
from porting.verify.distribution import compare_draws
from porting.verify.fault_place import find_place, kept_port
from porting.verify.grouping import Comparison, choose_comparison
from porting.verify.half_precision import judge_half_precision
from porting.verify.half_rounding import HalfRule
from porting.verify.inputs import PortMaker, collect_inputs
from porting.verify.judgement import (
    Judgement,
    decide_verdict,
    find_first,
    gradient_errors,
    judge_runs,
    list_outside,
)
from porting.verify.loss_curves import make_curves
from porting.verify.noise_band import NoiseBand, mean_loss
from porting.verify.plain_runs import PLAIN, Variant, run_plain, widen_training
from porting.verify.plain_training import PlainTraining
from porting.verify.port_reading import read_as_port
from porting.verify.ported_run import PortedTraining, can_match_streams, find_stream, run_ported
from porting.verify.recheck import make_record
from porting.verify.records import Record
from porting.verify.reference_loss import find_reading
from porting.verify.samples import compare_samples
from porting.verify.surroundings import Hasher, describe_surroundings, hash_options, hash_source, hash_weights

__all__ = ["Proof"]

# Beyond it the float64 run would need more memory than a proof may.
_MOST_DOUBLED = 128 << 20
# Of the first loss: what a run that computes the same may differ by.
_SAME_LOSS = 1e-2
# What no rounding explains, so that it need not be looked at more closely.
_HOPELESS, _HOPELESS_IN_HALF = 1e5, 30.0
_UNITS = {
    "float32": torch.finfo(torch.float32).eps,
    "float16": torch.finfo(torch.float16).eps,
    "mixed": torch.finfo(torch.float16).eps,
    "bfloat16": torch.finfo(torch.bfloat16).eps,
}
# relative, of losses that were computed twice in the same way; threads may add in another order
_SAME_AGAIN, _NUM_REPEATED_CALLS = 1e-4, 2
_CHANGED_UNITS, _RESCUE_UNITS, _NUM_RESCUES = 2.0, 4.0, 2
_NUM_ROUNDED_CALLS, _NUM_HALF_RUNS, _NUM_HALF_RESCUES = 2, 3, 8


class Proof:
    """A proof that goes on; whenever it ends, a certificate can be made of what there is."""

    def __init__(
        self,
        training: PlainTraining,
        maker: PortMaker,
        batches: Any,
        *,
        num_steps: int,
        seed: int,
        tell: Optional[Callable[[str], None]] = None,
    ) -> None:
        """Begin with nothing done; `tell` is called with what is done next."""
        self.ended_by = ""
        self._tell = tell or (lambda _stage: None)
        self._training, self._maker, self._batches = training, maker, batches
        self._num_steps, self._seed = num_steps, seed
        self._notes: List[str] = []
        self._missing: List[str] = []
        self._comparison: Optional[Comparison] = None
        self._plain, self._ported_record = Record(), Record()
        self._runs: List[Record] = []
        self._reference: Optional[Record] = None
        self._rule: Optional[HalfRule] = None
        self._judgement = Judgement()
        self._location: Optional[Location] = None
        self._precision: Optional[PrecisionVerdict] = None
        self._surroundings: Dict[str, Any] = {}
        self._hashes: Dict[str, str] = {}
        self._options: Any = None
        self._stream: Optional[torch.Tensor] = None

    def run(self) -> None:
        """Make all runs and compare them."""
        ported = self._maker.make()
        options = self._options = ported.model.options
        reading = find_reading(self._training)
        if reading:
            self._training = read_as_port(self._training)
            self._missing.append(f"the reference uses the port's reading of the loss, {reading}: give `compute_loss=`")
        if options.precision != "float32":
            self._training = widen_training(self._training)
        num_calls = max(1, math.ceil(self._num_steps / options.device_iterations))
        inputs = collect_inputs(self._batches, ported, num_calls, seed=self._seed)
        calls, theirs = inputs.calls, inputs.theirs
        self._notes += [inputs.note] if inputs.note else []
        with kept_port(self._maker, ported):
            self._hash_inputs(calls)
            self._stream = find_stream(ported.model)
            self._comparison = choose_comparison(self._training, calls[0], options, seed=self._seed)
            self._run_plain_side(calls, ported)
            done = self._plain.num_steps // options.device_iterations
            if self._plain.ended_by:
                self.ended_by = f"plain PyTorch ended after step {self._plain.num_steps}: {self._plain.ended_by}"
            if "KeyboardInterrupt" not in self._plain.ended_by and done:
                ours = calls[:done]
                self._run_port(ported, ours, ours if theirs is calls else theirs[:done])
                self._judge_precision(calls, ported)
        with kept_port(self._maker, ported):
            self._find_place(calls, theirs)

    # -- runs ----------------------------------------------------------------------------------------------------------

    @property
    def _unit(self) -> float:
        return _UNITS[self._options.precision]

    def _run_variant(self, calls: Calls, variant: Variant) -> Record:
        assert self._comparison is not None
        training, grouping, _draws, _text = self._comparison
        self._tell(f"{len(calls)} calls: {variant.name}")
        return run_plain(training, calls, grouping, seed=self._seed, variant=variant, stream=self._stream)

    def _run_plain_side(self, calls: Calls, ported: PortedTraining) -> None:
        is_half = self._options.precision != "float32"
        self._rule = rule = HalfRule.of(ported.model) if is_half else None
        self._plain = self._run_variant(calls, replace(PLAIN, rule=rule))
        calls = calls[: self._plain.num_steps // self._options.device_iterations]
        if self._plain.ended_by or not calls:
            return
        self._repeat_plain(calls)
        if is_half:
            for seed in range(1, 1 + _NUM_HALF_RUNS):
                self._try_variant(calls, Variant("half precision, rounded at random", rounding=seed, rule=rule))
            self._reference = self._run_variant(calls, PLAIN)
            return
        self._run_single(calls)

    def _repeat_plain(self, calls: Calls) -> None:
        """Run the first calls again as they are: a training that is another one each time shows nothing."""
        plain = replace(PLAIN, rule=self._rule)
        again = self._run_variant(calls[:_NUM_REPEATED_CALLS], plain)
        pairs = ((step, mean_loss(self._plain, step), mean_loss(again, step)) for step in again.losses)
        for step, one, other in pairs:
            if one is not None and other is not None and abs(one - other) > _SAME_AGAIN * abs(one):
                said = f"the loss of step {step} is {one:g} and {other:g}, from the same seed"
                self._missing.append(f"the training is another one each time that plain PyTorch runs it: {said}")
                # how far such runs come apart is no fault of the port's
                self._runs.append(self._run_variant(calls, plain))
                return

    def _run_single(self, calls: Calls) -> None:
        """Make the runs that measure the noise band of single precision."""
        assert self._comparison is not None
        # never more than the user allows
        num_threads = max(1, torch.get_num_threads() // 2)
        other = Variant(
            "another order of sums",
            permutes=None if self._comparison.draws else 1,
            changes_bits=1,
            num_threads=num_threads,
            size=_CHANGED_UNITS * self._unit,
        )
        if not self._try_variant(calls, other):
            self._try_variant(calls, replace(other, permutes=None))
        size = sum(parameter.numel() * parameter.element_size() for parameter in self._training.model.parameters())
        if size <= _MOST_DOUBLED and self._try_variant(calls, Variant("float64", is_double=True)):
            self._reference = self._runs[-1]
        elif size <= _MOST_DOUBLED:
            self._notes.append("there is no float64 reference: the model computes something else in that type")
        else:
            self._notes.append("there is no float64 reference: the model is too large for one")
            self._try_variant(calls, replace(other, permutes=None, changes_bits=2))
        rounded = Variant("rounded at random", rounding=1, size=_CHANGED_UNITS * self._unit)
        self._try_variant(calls[:_NUM_ROUNDED_CALLS], rounded)

    def _try_variant(self, calls: Calls, variant: Variant) -> bool:
        """Make a run that should be the same but for rounding; leave it out if it is not."""
        try:
            record = self._run_variant(calls, variant)
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            return False
        if "KeyboardInterrupt" in record.ended_by:
            raise KeyboardInterrupt
        one, other = mean_loss(self._plain, 1), mean_loss(record, 1)
        assert one is not None
        assert other is not None
        coarse = max(_SAME_LOSS, 16 * self._unit)
        if math.isfinite(one) and not abs(one - other) <= coarse * max(abs(one), 1e-6):
            return False
        self._runs.append(record)
        return True

    def _run_port(self, ported: PortedTraining, calls: Calls, theirs: Calls) -> None:
        assert self._comparison is not None
        self._judgement.add(compare_samples(self._batches, ported, calls, theirs))
        self._tell(f"{len(theirs)} calls: the port")
        self._ported_record = run_ported(ported, theirs, seed=self._seed)
        self._surroundings = describe_surroundings(ported.model, seeds={"all": self._seed})
        if self._ported_record.ended_by:
            self.ended_by = f"the port ended after step {self._ported_record.num_steps}: {self._ported_record.ended_by}"
        samples = self._judgement
        is_matched = not self._comparison.draws or can_match_streams(ported.model)
        self._judgement = self._judge_runs()
        if is_matched:
            self._round_otherwise(calls)
        else:
            self._judgement.leave_out_drawn("the device's random numbers are not those of plain PyTorch")
        self._judgement.add(one for found in samples.measured.values() for one in found)
        if ported.model.options.replicas > 1 and any(True for _ in ported.model.model.buffers()):
            self._notes.append("of the buffers those of the first replica were looked at, and none of the others")
        if ("output", 1) not in self._ported_record.sketches:
            self._judgement.reasons["output"] = (
                'the port returns none, or those of some micro-batches alone: `output_mode="all"`'
            )
        if not ported.model.options.keep_gradients:
            self._judgement.reasons["gradient"] = (
                "the port keeps them on the device: `PortOptions(keep_gradients=True)`"
            )
        if not self._ported_record.ended_by and self._judgement.lost is None:
            self._look_after(ported, theirs)
        if self._comparison.draws:
            self._note_draws(ported, theirs[0], is_matched=is_matched)

    def _note_draws(self, ported: PortedTraining, call: MicroBatch, *, is_matched: bool) -> None:
        """Say how random numbers are compared; draw many times where they are not the same."""
        if is_matched:
            self._notes.append("random numbers are drawn: both sides draw from the same stream, in the same order")
        elif self._comparison is not None and not self.ended_by:
            found, note = compare_draws(self._comparison, ported, call, seed=self._seed)
            self._judgement.add(found)
            self._notes.append(note)

    def _judge_runs(self) -> Judgement:
        assert self._comparison is not None
        band = NoiseBand(self._plain, self._runs, self._unit)
        return judge_runs(self._plain, self._ported_record, band, loss_factor=self._loss_factor)

    @property
    def _loss_factor(self) -> float:
        """What makes the port's mean loss of one plain PyTorch's."""
        if self._comparison is None:
            return 1.0
        training, grouping, _draws, _text = self._comparison
        is_sum = grouping.is_large and training.accumulated == "sum"
        return float(grouping.micro_batches_per_step) if is_sum else 1.0

    def _round_otherwise(self, calls: Calls) -> None:
        """Look more closely at what is outside: round every operator otherwise, up to where that is."""
        is_half = self._rule is not None
        for number in range(_NUM_HALF_RESCUES if is_half else _NUM_RESCUES):
            outside = [one for one in list_outside(self._judgement) if math.isfinite(one.factor)]
            hopeless = _HOPELESS_IN_HALF if is_half else _HOPELESS
            if not outside or min(outside, key=lambda one: one.step).factor > hopeless:
                return
            last = -(-max(one.step for one in outside) // self._options.device_iterations)
            seed, size = 11 + number, _RESCUE_UNITS * self._unit
            variant = Variant("rounded at random", changes_bits=seed, rounding=seed, size=size)
            if is_half:
                # a few runs may all miss what only some do, such as a unit that rounding switches on
                variant = Variant("half precision, rounded at random", rounding=seed, rule=self._rule)
                if number == 0 and self._reference is not None:
                    self._runs.append(self._reference)
            if not self._try_variant(calls[:last], variant):
                return
            self._judgement = self._judge_runs()

    def _look_after(self, ported: PortedTraining, calls: Calls) -> None:
        assert self._comparison is not None
        step = self._ported_record.num_steps
        try:
            self._tell("evaluation, saving and resuming")
            look_after_training(ported, self._comparison.training, calls, self._judgement, step=step, unit=self._unit)
        except Exception as error:
            self.ended_by = f"evaluation, saving or resuming failed: {type(error).__name__}: {error}"

    def _find_place(self, calls: Calls, theirs: Calls) -> None:
        """Look for the place of what is outside; that it cannot be found changes no verdict."""
        first = find_first(self._judgement)
        if first is None or self._comparison is None:
            return
        curves = make_curves(self._plain, self._ported_record, self._reference, self._runs)
        try:
            self._location = find_place(
                self._comparison, self._maker, calls, theirs, first=first, curves=curves, seed=self._seed
            )
        except Exception as error:
            self._notes.append(f"the place of the fault was not found: {type(error).__name__}: {error}")

    def _judge_precision(self, calls: Calls, ported: PortedTraining) -> None:
        if self._rule is None or self._comparison is None:
            return
        parts = self._comparison.grouping.cut(calls[0])[0]
        kinds, curves = (
            self._judgement.list_verdicts(),
            make_curves(self._plain, self._ported_record, self._reference, self._runs),
        )
        self._precision = judge_half_precision(self._training, parts, self._rule, kinds=kinds, curves=curves)

    def _hash_inputs(self, calls: Calls) -> None:
        training = self._training
        data = Hasher()
        for call in calls:
            data.add([flatten_tensors(call[0]), flatten_tensors(call[1])])
        self._hashes = {
            "source": hash_source(training.model, *([training.loss] if callable(training.loss) else [])),
            "weights": hash_weights(training.model),
            "data": data.digest,
            "options": hash_options(self._options, training.optimizer),
        }

    # -- the certificate -----------------------------------------------------------------------------------------------

    def make_certificate(self, *, seconds: float) -> Certificate:
        """Make the certificate of what there is."""
        judgement = self._judgement
        kinds = tuple(judgement.list_verdicts())
        verdict, reason = decide_verdict(
            judgement,
            self._count_compared(),
            ended_by=self.ended_by,
            missing=self._missing,
            precision=self._precision,
        )
        comparison = self._comparison
        return Certificate(
            verdict,
            reason,
            kinds,
            num_steps=self._count_compared(),
            num_steps_asked=self._num_steps,
            curves=make_curves(self._plain, self._ported_record, self._reference, self._runs),
            gradient_errors=gradient_errors(judgement),
            comparison="" if comparison is None else comparison.text,
            notes=(*self._notes, *(missing for missing in self._missing if missing not in reason)),
            location=self._location,
            precision=self._precision,
            settings={"steps": self._num_steps, "seed": self._seed},
            surroundings=self._surroundings or describe_surroundings(seeds={"all": self._seed}),
            hashes=self._hashes,
            seconds=seconds,
            record=make_record(self._plain, self._ported_record, self._judgement, loss_factor=self._loss_factor),
        )

    def _count_compared(self) -> int:
        ends = [step - 1 for step in (self._judgement.chaos, self._judgement.lost) if step is not None]
        return min([self._plain.num_steps, self._ported_record.num_steps, *ends])
