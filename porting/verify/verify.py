"""Prove that a port trains what plain PyTorch trains, with tolerances that are measured.

`porting verify` and the plug-in of pytest call this function.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Optional

import torch
from torch import nn

from porting.diagnostics import PortingWarning
from porting.engines.calls.freed_memory import return_freed_memory
from porting.options import PortOptions
from porting.structure import flatten_tensors
from porting.verify.aftermath import look_after_training
from porting.verify.calls import Calls
from porting.verify.certificate import Certificate, PrecisionVerdict, Sensitivity
from porting.verify.distribution import compare_draws
from porting.verify.fault_place import find_place, kept_port
from porting.verify.half_precision import judge_half_precision
from porting.verify.half_rounding import HalfRule
from porting.verify.inputs import PortMaker, collect_inputs, compare_samples, make_training
from porting.verify.judgement import STOPPED, Judgement, find_first
from porting.verify.plain_runs import widen_training
from porting.verify.plain_side import PlainSide, choose_comparison
from porting.verify.plain_training import PlainTraining
from porting.verify.port_reading import read_as_port
from porting.verify.ported_run import PortedTraining, can_match_streams, find_stream, run_ported
from porting.verify.reference_loss import find_reading
from porting.verify.resumption import RunElsewhere
from porting.verify.runs import Runs, find_smallest_fault
from porting.verify.surroundings import describe_surroundings, hash_options, hash_source, hash_values

__all__ = ["verify"]

# how long the parts of a proof take, as multiples of a run of plain PyTorch
_PARTS, _PARTS_OF_HALF = 7.0, 16.0


def verify(
    model: object,
    loss: object = None,
    batches: object = None,
    *,
    optimizer: object = None,
    scheduler: object = None,
    options: Optional[PortOptions] = None,
    ported: object = None,
    steps: int = 50,
    seed: int = 0,
    label: object = -1,
    label_transform: Optional[Callable[[Any], Any]] = None,
    loss_output: object = None,
    reduction: Optional[str] = None,
    compute_loss: Optional[Callable[..., torch.Tensor]] = None,
    max_grad_norm: Optional[float] = None,
    schedule_every: str = "step",
    each_epoch: Optional[Callable[[nn.Module, Any, int], None]] = None,
    also: Optional[Callable[[nn.Module], Any]] = None,
    save: Optional[Callable[[Any, Path], None]] = None,
    load: Optional[Callable[[Any, Path], None]] = None,
    device: str = "auto",
    run_elsewhere: Optional[RunElsewhere] = None,
    tell: Optional[Callable[[str], None]] = None,
) -> Certificate:
    """Train a copy of `model` in plain PyTorch and a port of another copy, and certify whether they are the same.

    `model` may be a `PlainTraining` that has everything up to `scheduler`, and the loss's settings. `optimizer` is one
    of the model's parameters, or a function of the model that makes one; `scheduler` a schedule of it, or a function of
    the optimizer, which is stepped as `schedule_every` says. `batches` is one combined batch as a call of the port
    takes it, which is repeated; a list of them; or a loader, which is gone through again and again. `ported` is a port
    of a copy that the user has made, a `PortedTraining` around it, or a function that makes one of a copied model;
    without it, `to_ipu` makes it with `options` and `device`. `save(port, path)` and `load(port, path)` are the user's
    own way to keep a training, which is resumed by them. `schedule_every`, `each_epoch`, `also` and `compute_loss` are
    those of `PlainTraining`, the other arguments those of `to_ipu`. `tell` is called with what is done next, in words;
    `run_elsewhere` resumes the training in another process, as the command does.

    Both run for `steps` optimizer steps from the same seed. The tolerance of each number is what rounding alone does to
    it, measured by runs of plain PyTorch that differ in the order of sums, in last bits, in threads and in precision.
    The model, the optimizer, the schedule, the port and all random streams are as before afterwards.

    An error in the middle of a run, or Ctrl-C, ends it: the certificate is INCOMPLETE then, and tells how far it came.
    An error before the first step comes through. Raises PortingError V002 for what cannot be compared.

    >>> import porting, torch
    >>> from torch import nn
    >>> batch = torch.ones(3, 4), torch.zeros(3, 2)
    >>> porting.verify(nn.Linear(4, 2), nn.MSELoss(), batch, steps=3, device="sim").verdict.value
    'PASS'
    """
    started = time.perf_counter()
    training = make_training(
        model,
        loss,
        optimizer,
        scheduler,
        max_grad_norm=max_grad_norm,
        schedule_every=schedule_every,
        each_epoch=each_epoch,
        also=also,
        label=label,
        label_transform=label_transform,
        loss_output=loss_output,
        reduction=reduction,
        compute_loss=compute_loss,
    )
    maker = PortMaker(training, ported, options, device, save, load)
    proof = _Proof(training, maker, batches, num_steps=steps, seed=seed, tell=tell, run_elsewhere=run_elsewhere)
    with warnings.catch_warnings():
        # the certificate says what is not finite, and on which side
        warnings.filterwarnings("ignore", r"warning\[L008\]", PortingWarning)
        proof.run()
    return proof.make_certificate(seconds=time.perf_counter() - started)


class _Progress:
    """Tells what is done next, and about how long the whole still takes."""

    def __init__(self, tell: Optional[Callable[[str], None]], options: PortOptions, num_calls: int) -> None:
        """Begin with nothing done; a closer look that may follow is not counted."""
        self._tell, self._started = tell, time.monotonic()
        self._total = (_PARTS if options.precision == "float32" else _PARTS_OF_HALF) * num_calls
        self._begun = 0.0

    def __call__(self, stage: str, num_calls: float) -> None:
        """Tell the next stage, which takes as long as `num_calls` calls of plain PyTorch."""
        if self._tell is None:
            return
        left = self._total - self._begun
        seconds = (time.monotonic() - self._started) / self._begun * left if self._begun and left > 0 else 0.0
        self._tell(f"{stage}, about {seconds:,.0f} s left;" if seconds >= 1 else stage)
        self._begun += num_calls


@dataclass
class _Proof:
    """A proof that goes on; whenever it ends, a certificate can be made of what there is.

    `tell` is called with what is done next. `calls` and `theirs` are the batches of both sides.
    """

    training: PlainTraining
    maker: PortMaker
    batches: Any
    num_steps: int
    seed: int
    tell: Optional[Callable[[str], None]] = None
    run_elsewhere: Optional[RunElsewhere] = None
    runs: Runs = field(default_factory=lambda: Runs(0.0))
    judgement: Judgement = field(default_factory=Judgement)
    afterwards: Judgement = field(default_factory=Judgement)
    facts: Dict[str, Any] = field(default_factory=dict)
    precision: Optional[PrecisionVerdict] = None
    ended_by: str = ""
    is_stopped: bool = False
    ported: PortedTraining = field(init=False)
    calls: Calls = field(init=False)
    theirs: Calls = field(init=False)
    side: PlainSide = field(init=False)
    progress: _Progress = field(init=False)

    def run(self) -> None:
        """Make all runs and compare them; if the user stops it, those that there are until then."""
        try:
            self._run_and_compare()
        except KeyboardInterrupt:
            self._note_stop()

    def _note_stop(self) -> None:
        self.is_stopped, self.ended_by = True, self.ended_by or STOPPED

    def _run_and_compare(self) -> None:
        self.ported = self.maker.make()
        options = self.ported.model.options
        reading = find_reading(self.training)
        if reading:
            self.training = read_as_port(self.training)
            words = f"the reference uses the port's reading of the loss, {reading}"
            self.runs.missing.append(f"{words}: give `compute_loss=`")
        if options.precision != "float32":
            self.training = widen_training(self.training)
        num_calls = max(1, math.ceil(self.num_steps / options.device_iterations))
        inputs = collect_inputs(self.batches, self.ported, num_calls, seed=self.seed)
        self.calls, self.theirs = inputs.calls, inputs.theirs
        self.runs.notes += [inputs.note] if inputs.note else []
        is_waiting = self.training.each_epoch is not None or self.training.schedule_every == "epoch"
        if is_waiting and not any(map(self.calls.ends_epoch, range(len(self.calls)))):
            self.runs.notes.append("no epoch has ended: what the loop does after one was not looked at")
        self.progress = _Progress(self.tell, options, num_calls)
        with kept_port(self.maker, self.ported):
            self.facts["hashes"] = self._hash_inputs()
            self.side = PlainSide(
                self.runs,
                choose_comparison(self.training, self.calls[0], options, seed=self.seed),
                HalfRule.of(self.ported.model) if options.precision != "float32" else None,
                options,
                seed=self.seed,
                stream=find_stream(self.ported.model),
                tell=self.progress,
            )
            self.facts["comparison"] = self.side.comparison.text
            self._compare_sides()
        if not self.is_stopped:
            with kept_port(self.maker, self.ported):
                self._find_place()

    # -- runs ----------------------------------------------------------------------------------------------------------

    def _compare_sides(self) -> None:
        """Make the runs of both sides, the port's early, so that a proof that is stopped has compared something."""
        try:
            self._run_both_sides()
        except KeyboardInterrupt:
            self._note_stop()
        if not self.runs.ported.losses:
            return
        try:
            self._compare_records()
        except KeyboardInterrupt:
            self._note_stop()
            # without the closer look that takes time
            self._compare_records()

    def _run_both_sides(self) -> None:
        done, plain = self.side.begin(self.calls), self.runs.plain
        if plain.ended_by:
            self.ended_by = f"plain PyTorch ended after step {plain.num_steps}: {plain.ended_by}"
        if not done or "KeyboardInterrupt" in plain.ended_by:
            return
        self.calls, self.theirs = done, done if self.theirs is self.calls else self.theirs[: len(done)]
        self.progress(f"{len(done)} calls: the port", 2.0 * len(done))
        own = self.runs.ported = run_ported(self.ported, self.theirs, seed=self.seed)
        self.facts["surroundings"] = describe_surroundings(self.ported.model, seeds={"all": self.seed})
        if own.ended_by:
            self.ended_by = f"the port ended after step {own.num_steps}: {own.ended_by}"
        self.is_stopped = "KeyboardInterrupt" in own.ended_by
        if not self.is_stopped:
            self._finish_port()
            self.side.go_on(done)

    def _finish_port(self) -> None:
        """Look at what is left after the port's training, and let go of its device."""
        if not self.runs.ported.ended_by and self.runs.judge().lost is None:
            self._look_after()
        is_matched = can_match_streams(self.ported.model)
        if self.side.comparison.draws and not is_matched and not self.ended_by:
            found, note = compare_draws(self.side.comparison, self.ported, self.theirs[0], seed=self.seed)
            self.afterwards.add(found)
            self.runs.notes.append(note)
        if not self.maker.is_given:
            self.ported.model.destroy()
        # the memory of a proof is that of its largest part, and a port's calls keep what they have freed
        return_freed_memory()

    def _compare_records(self) -> None:
        """Judge what there is; what a proof that was stopped has found is not looked at more closely."""
        self.judgement = self.runs.judge()
        if self.side.comparison.draws and not can_match_streams(self.ported.model):
            self.judgement.leave_out_drawn("the device's random numbers are not those of plain PyTorch")
        elif not self.is_stopped:
            self.judgement = self.side.judge_closely(self.calls)
        if self.side.comparison.draws and can_match_streams(self.ported.model):
            self.runs.notes.append("random numbers are drawn: both sides draw from the same stream, in the same order")
        self.judgement.add(compare_samples(self.batches, self.ported, self.calls, self.theirs))
        self.judgement.include(self.afterwards)
        self._say_what_is_not_seen()
        if not self.is_stopped:
            self._judge_precision()

    def _say_what_is_not_seen(self) -> None:
        options = self.ported.model.options
        if options.replicas > 1 and any(True for _ in self.ported.model.model.buffers()):
            self.runs.notes.append("of the buffers those of the first replica were looked at, and none of the others")
        if ("output", 1) not in self.runs.ported.sketches:
            self.judgement.reasons["output"] = (
                'the port returns none, or those of some micro-batches alone: `output_mode="all"`'
            )
        if not options.keep_gradients:
            self.judgement.reasons["gradient"] = "the port keeps them on the device: `PortOptions(keep_gradients=True)`"

    def _look_after(self) -> None:
        step = self.runs.ported.num_steps
        return_freed_memory()
        try:
            self.progress("evaluation, saving and resuming", float(len(self.theirs)))
            look_after_training(
                self.ported,
                self.side.comparison.training,
                self.theirs,
                self.afterwards,
                step=step,
                unit=self.runs.unit,
                run_elsewhere=self.run_elsewhere,
            )
        except Exception as error:
            self.ended_by = f"evaluation, saving or resuming failed: {type(error).__name__}: {error}"

    def _find_place(self) -> None:
        """Look for the place of what is outside; that it cannot be found changes no verdict."""
        first = find_first(self.judgement)
        if first is None:
            return
        try:
            self.facts["location"] = find_place(
                self.side.comparison,
                self.maker,
                self.calls,
                self.theirs,
                first=first,
                curves=self.runs.make_curves(),
                seed=self.seed,
                records=(self.runs.plain, self.runs.ported),
            )
        except KeyboardInterrupt:
            self.runs.notes.append("the place of the fault was not found: it was interrupted")
        except Exception as error:
            self.runs.notes.append(f"the place of the fault was not found: {type(error).__name__}: {error}")

    def _judge_precision(self) -> None:
        if self.side.rule is None:
            return
        parts = self.side.comparison.grouping.cut(self.calls[0])[0]
        kinds = self.judgement.list_verdicts()
        curves = self.runs.make_curves()
        self.precision = judge_half_precision(self.training, parts, self.side.rule, kinds=kinds, curves=curves)

    def _hash_inputs(self) -> Dict[str, str]:
        training = self.training
        return {
            "source": hash_source(training.model, *([training.loss] if callable(training.loss) else [])),
            "weights": hash_values([dict(training.model.state_dict())]),
            "data": hash_values(list(map(flatten_tensors, call)) for call in self.calls),
            "options": hash_options(self.ported.model.options, training.optimizer),
        }

    # -- the certificate -----------------------------------------------------------------------------------------------

    def make_certificate(self, *, seconds: float) -> Certificate:
        """Make the certificate of what there is."""
        # before the verdict: it may be what the user stops
        sensitivity = self._find_sensitivity()
        facts: Dict[str, Any] = {"surroundings": describe_surroundings(seeds={"all": self.seed}), **self.facts}
        return self.runs.certify(
            self.judgement,
            ended_by=self.ended_by,
            is_stopped=self.is_stopped,
            precision=self.precision,
            num_steps_asked=self.num_steps,
            sensitivity=sensitivity,
            settings={"steps": self.num_steps, "seed": self.seed},
            seconds=seconds,
            **facts,
        )

    def _find_sensitivity(self) -> Optional[Sensitivity]:
        try:
            return find_smallest_fault(self.judgement, self.runs.band)
        except KeyboardInterrupt:
            self.runs.notes.append("how small a fault would have been caught was not looked for: it was interrupted")
            return None
