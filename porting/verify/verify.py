"""`verify`: proves that a port trains what plain PyTorch trains, with tolerances that are measured, not guessed."""

from __future__ import annotations

import math
import time
import warnings
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
from porting.verify.certificate import Certificate, Location, PrecisionVerdict, Sensitivity
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
from porting.verify.surroundings import Hasher, describe_surroundings, hash_options, hash_source, hash_weights

__all__ = ["verify"]

# how long the parts of a proof take, as multiples of a run of plain PyTorch
_PARTS, _PARTS_OF_HALF = 7.0, 16.0


def verify(
    model: Any,
    loss: Any = None,
    batches: Any = None,
    *,
    optimizer: Any = None,
    scheduler: Any = None,
    options: Optional[PortOptions] = None,
    ported: Any = None,
    steps: int = 50,
    seed: int = 0,
    label: Any = -1,
    label_transform: Optional[Callable[[Any], Any]] = None,
    loss_output: Any = None,
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

    def __init__(self, tell: Optional[Callable[[str], None]], options: Any, num_calls: int) -> None:
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


class _Proof:
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
        run_elsewhere: Optional[RunElsewhere] = None,
    ) -> None:
        """Begin with nothing done; `tell` is called with what is done next."""
        self._ended_by = ""
        self._is_stopped = False
        self._tell, self._run_elsewhere = tell, run_elsewhere
        self._training, self._maker, self._batches = training, maker, batches
        self._num_steps, self._seed = num_steps, seed
        self._runs, self._comparison = Runs(0.0), ""
        self._judgement, self._afterwards = Judgement(), Judgement()
        self._location: Optional[Location] = None
        self._precision: Optional[PrecisionVerdict] = None
        self._surroundings: Dict[str, Any] = {}
        self._hashes: Dict[str, str] = {}

    def run(self) -> None:
        """Make all runs and compare them; if the user stops it, those that there are until then."""
        try:
            self._make_and_compare()
        except KeyboardInterrupt:
            self._stop()

    def _stop(self) -> None:
        self._is_stopped, self._ended_by = True, self._ended_by or STOPPED

    def _make_and_compare(self) -> None:
        ported = self._maker.make()
        options = ported.model.options
        reading = find_reading(self._training)
        if reading:
            self._training = read_as_port(self._training)
            self._runs.missing.append(
                f"the reference uses the port's reading of the loss, {reading}: give `compute_loss=`"
            )
        if options.precision != "float32":
            self._training = widen_training(self._training)
        num_calls = max(1, math.ceil(self._num_steps / options.device_iterations))
        inputs = collect_inputs(self._batches, ported, num_calls, seed=self._seed)
        calls, theirs = inputs.calls, inputs.theirs
        self._runs.notes += [inputs.note] if inputs.note else []
        is_waiting = self._training.each_epoch is not None or self._training.schedule_every == "epoch"
        if is_waiting and not any(map(calls.ends_epoch, range(len(calls)))):
            self._runs.notes.append("no epoch has ended: what the loop does after one was not looked at")
        progress = _Progress(self._tell, options, num_calls)
        with kept_port(self._maker, ported):
            self._hash_inputs(calls, options)
            side = PlainSide(
                self._runs,
                choose_comparison(self._training, calls[0], options, seed=self._seed),
                HalfRule.of(ported.model) if options.precision != "float32" else None,
                options,
                seed=self._seed,
                stream=find_stream(ported.model),
                tell=progress,
            )
            self._comparison = side.comparison.text
            self._make_runs(side, ported, calls, theirs, progress)
        if not self._is_stopped:
            with kept_port(self._maker, ported):
                self._find_place(side, calls, theirs)

    # -- runs ----------------------------------------------------------------------------------------------------------

    def _make_runs(
        self, side: PlainSide, ported: PortedTraining, calls: Calls, theirs: Calls, progress: _Progress
    ) -> None:
        """Make the runs of both sides, the port's early, so that a proof that is stopped has compared something."""
        done = calls
        try:
            done = side.begin(calls)
            plain = self._runs.plain
            if plain.ended_by:
                self._ended_by = f"plain PyTorch ended after step {plain.num_steps}: {plain.ended_by}"
            if not done or "KeyboardInterrupt" in plain.ended_by:
                return
            theirs = done if theirs is calls else theirs[: len(done)]
            progress(f"{len(theirs)} calls: the port", 2.0 * len(theirs))
            own = self._runs.ported = run_ported(ported, theirs, seed=self._seed)
            self._surroundings = describe_surroundings(ported.model, seeds={"all": self._seed})
            if own.ended_by:
                self._ended_by = f"the port ended after step {own.num_steps}: {own.ended_by}"
            self._is_stopped = "KeyboardInterrupt" in own.ended_by
            if not self._is_stopped:
                self._finish_port(side, ported, theirs, progress)
                side.go_on(done)
        except KeyboardInterrupt:
            self._stop()
        if not self._runs.ported.losses:
            return
        try:
            self._compare_records(side, ported, done, theirs)
        except KeyboardInterrupt:
            self._stop()
            # without the closer look that takes time
            self._compare_records(side, ported, done, theirs)

    def _finish_port(self, side: PlainSide, ported: PortedTraining, calls: Calls, progress: _Progress) -> None:
        """Look at what is left after the port's training, and let go of its device."""
        if not self._runs.ported.ended_by and self._runs.judge().lost is None:
            self._look_after(side, ported, calls, progress)
        is_matched = can_match_streams(ported.model)
        if side.comparison.draws and not is_matched and not self._ended_by:
            found, note = compare_draws(side.comparison, ported, calls[0], seed=self._seed)
            self._afterwards.add(found)
            self._runs.notes.append(note)
        if not self._maker.is_given:
            ported.model.destroy()
        # the memory of a proof is that of its largest part, and a port's calls keep what they have freed
        return_freed_memory()

    def _compare_records(self, side: PlainSide, ported: PortedTraining, calls: Calls, theirs: Calls) -> None:
        """Judge what there is; what a proof that was stopped has found is not looked at more closely."""
        self._judgement = self._runs.judge()
        if side.comparison.draws and not can_match_streams(ported.model):
            self._judgement.leave_out_drawn("the device's random numbers are not those of plain PyTorch")
        elif not self._is_stopped:
            self._judgement = side.judge_closely(calls)
        if side.comparison.draws and can_match_streams(ported.model):
            self._runs.notes.append("random numbers are drawn: both sides draw from the same stream, in the same order")
        self._judgement.add(compare_samples(self._batches, ported, calls, theirs))
        self._judgement.include(self._afterwards)
        self._say_what_is_not_seen(ported)
        if not self._is_stopped:
            self._judge_precision(side, calls)

    def _say_what_is_not_seen(self, ported: PortedTraining) -> None:
        options = ported.model.options
        if options.replicas > 1 and any(True for _ in ported.model.model.buffers()):
            self._runs.notes.append("of the buffers those of the first replica were looked at, and none of the others")
        if ("output", 1) not in self._runs.ported.sketches:
            self._judgement.reasons["output"] = (
                'the port returns none, or those of some micro-batches alone: `output_mode="all"`'
            )
        if not options.keep_gradients:
            self._judgement.reasons["gradient"] = (
                "the port keeps them on the device: `PortOptions(keep_gradients=True)`"
            )

    def _look_after(self, side: PlainSide, ported: PortedTraining, calls: Calls, progress: _Progress) -> None:
        step = self._runs.ported.num_steps
        return_freed_memory()
        try:
            progress("evaluation, saving and resuming", float(len(calls)))
            look_after_training(
                ported,
                side.comparison.training,
                calls,
                self._afterwards,
                step=step,
                unit=self._runs.unit,
                run_elsewhere=self._run_elsewhere,
            )
        except Exception as error:
            self._ended_by = f"evaluation, saving or resuming failed: {type(error).__name__}: {error}"

    def _find_place(self, side: PlainSide, calls: Calls, theirs: Calls) -> None:
        """Look for the place of what is outside; that it cannot be found changes no verdict."""
        first = find_first(self._judgement)
        if first is None:
            return
        try:
            self._location = find_place(
                side.comparison,
                self._maker,
                calls,
                theirs,
                first=first,
                curves=self._runs.make_curves(),
                seed=self._seed,
                records=(self._runs.plain, self._runs.ported),
            )
        except KeyboardInterrupt:
            self._runs.notes.append("the place of the fault was not found: it was interrupted")
        except Exception as error:
            self._runs.notes.append(f"the place of the fault was not found: {type(error).__name__}: {error}")

    def _judge_precision(self, side: PlainSide, calls: Calls) -> None:
        if side.rule is None:
            return
        parts = side.comparison.grouping.cut(calls[0])[0]
        kinds = self._judgement.list_verdicts()
        curves = self._runs.make_curves()
        self._precision = judge_half_precision(self._training, parts, side.rule, kinds=kinds, curves=curves)

    def _hash_inputs(self, calls: Calls, options: Any) -> None:
        training = self._training
        data = Hasher()
        for call in calls:
            data.add([flatten_tensors(call[0]), flatten_tensors(call[1])])
        self._hashes = {
            "source": hash_source(training.model, *([training.loss] if callable(training.loss) else [])),
            "weights": hash_weights(training.model),
            "data": data.digest,
            "options": hash_options(options, training.optimizer),
        }

    # -- the certificate -----------------------------------------------------------------------------------------------

    def make_certificate(self, *, seconds: float) -> Certificate:
        """Make the certificate of what there is."""
        # before the verdict: it may be what the user stops
        sensitivity = self._find_sensitivity()
        return self._runs.certify(
            self._judgement,
            ended_by=self._ended_by,
            is_stopped=self._is_stopped,
            precision=self._precision,
            num_steps_asked=self._num_steps,
            sensitivity=sensitivity,
            comparison=self._comparison,
            location=self._location,
            settings={"steps": self._num_steps, "seed": self._seed},
            surroundings=self._surroundings or describe_surroundings(seeds={"all": self._seed}),
            hashes=self._hashes,
            seconds=seconds,
        )

    def _find_sensitivity(self) -> Optional[Sensitivity]:
        try:
            return find_smallest_fault(self._judgement, self._runs.band)
        except KeyboardInterrupt:
            self._runs.notes.append("how small a fault would have been caught was not looked for: it was interrupted")
            return None
