"""Compare what follows a training: an evaluation, weights in plain PyTorch, and a resumed training.

`verify` asks for it once the steps agree.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

import torch

from porting.adapters import Checkpoint, load_checkpoint
from porting.comparison.random_rounding import RandomRounding
from porting.comparison.sketches import distance_of_sketches
from porting.diagnostics import take_first_line
from porting.model_copies import keep_buffers
from porting.support.host_state import keep_streams
from porting.verify.calls import Calls, MicroBatch, are_same_tensors
from porting.verify.certificate import Measured
from porting.verify.half_rounding import HalfRule, half_rounding
from porting.verify.judgement import FixedBand, Judgement, compare_tensors
from porting.verify.optimizer_settings import iter_setting_differences, read_setting
from porting.verify.plain_runs import copy_training, join_outputs, name_state, watch_outputs
from porting.verify.plain_training import PlainRun, PlainTraining, cut_micro_batches
from porting.verify.ported_run import PortedTraining
from porting.verify.records import Record, Sketches, sketch_all
from porting.verify.resumption import (
    RunElsewhere,
    compare_fresh_process,
    compare_resumed,
    compare_states,
    go_on,
    save_port,
    sketch_state,
)

__all__ = ["look_after_training"]

_MARGIN, _UNITS = 8.0, 16.0
_NUM_NOISES = 2
# bytes of weights
_LARGE = 128 << 20
# what is compared as a whole where a checkpoint does not load
_WEIGHTS = "weights"
_APPEARS = "it is there only before or only after"


# the names of the parameters of each group
_Groups = List[List[str]]


def look_after_training(
    ported: PortedTraining,
    training: PlainTraining,
    calls: Calls,
    judgement: Judgement,
    *,
    step: int,
    unit: float,
    run_elsewhere: Optional[RunElsewhere] = None,
) -> None:
    """Evaluate, save, reload and resume; add to `judgement` what is measured, and why something is not.

    `unit` is that of the coarsest type in use; `run_elsewhere` resumes the training in a process of its own. The port
    is left behind its further training. An error leaves what was measured before it.
    """
    with tempfile.TemporaryDirectory() as folder, keep_streams():
        path = Path(folder) / "before.pt"
        save_port(ported, path)
        before = sketch_state(ported)
        groups = _name_groups(ported)
        outputs, failure = _try_evaluation(ported, calls[-1])
        save_port(ported, path.with_name("after.pt"))
        users_path = path.with_name("users.pt")
        save_port(ported, users_path, is_users=True)
        judgement.add(_compare_streams(map(load_checkpoint, (path, path.with_name("after.pt"))), step))
        judgement.add(_compare_saved_settings(ported, load_checkpoint(path), step))
        gone_on = go_on(ported, calls)
        after = gone_on.begun
        if sum(value.numel() * value.element_size() for value in ported.model.parameters()) > _LARGE:
            # so that a proof needs little more memory than the training; the next call compiles anew
            ported.model.destroy()
        reloaded = list(_compare_reloaded(training, load_checkpoint(path), before, step, groups))
        judgement.add(reloaded)
        written: Set[str] = set()
        if failure:
            # of a model that cannot be evaluated in plain PyTorch either nothing can be said
            _evaluate_with_noise(ported, training, path, calls[-1], unit)
            judgement.add([Measured("evaluation", "outputs", step, math.inf, 0.0, 0.0, failure)])
        elif outputs is None:
            judgement.reasons["evaluation"] = "the port returns no output; that nothing changes was looked at"
        elif any(one.name == _WEIGHTS for one in reloaded):
            judgement.reasons["evaluation"] = "the saved weights do not load; that nothing changes was looked at"
        else:
            plain, noises = _evaluate_with_noise(ported, training, path, calls[-1], unit)
            # what `forward` itself writes to in plain PyTorch is a result
            written = set(plain) & set(before)
            if ported.model.options.replicas > 1:
                plain = {name: sketch for name, sketch in plain.items() if name not in written}
            results = {**outputs, **{name: after[name] for name in plain if name in written}}
            judgement.add(_compare_evaluation(plain, noises, results, step, unit))
        kept, now = ({name: side[name] for name in side if name not in written} for side in (before, after))
        judgement.add(compare_states("evaluation", step, kept, now, fault="it changed in evaluation", lacking=_APPEARS))
        if ported.save is not None and ported.load is None:
            for kind in ("resuming", "fresh process"):
                judgement.reasons[kind] = "there is a `save=`, and no `load=` that reads its files"
            return
        judgement.add(compare_resumed(ported, users_path, calls, gone_on, step, unit))
        if run_elsewhere is not None:
            judgement.add(compare_fresh_process(run_elsewhere, users_path, calls, gone_on, step, unit))


# -- evaluation --------------------------------------------------------------------------------------------------------


def _try_evaluation(ported: PortedTraining, batch: MicroBatch) -> Tuple[Optional[Sketches], str]:
    """Return what the port's evaluation returns, and in words why there is none."""
    model = ported.model
    output_of = model.port.wrapped.output_of
    args, kwargs = _take_rows(batch, model.options.accumulation)
    model.eval()
    try:
        returned = model(*args, **kwargs)
        return None if output_of is None else sketch_all(join_outputs([output_of(returned)])), ""
    except Exception as error:
        return None, f"it fails in the port alone: {type(error).__name__}: {take_first_line(error)}"
    finally:
        model.train()


def _take_rows(batch: MicroBatch, parts: int) -> MicroBatch:
    """Take the rows of an evaluation, in which nothing is accumulated."""
    return cut_micro_batches(*batch, parts)[0]


def _compare_evaluation(
    plain: Sketches, noises: Sequence[Sketches], outputs: Sketches, step: int, unit: float
) -> Iterator[Measured]:
    """Compare with plain PyTorch that has the saved weights: what a user gets who takes them home."""

    def find_band(_kind: str, _step: int, name: str) -> float:
        if any(run[name].num_not_finite for run in (plain, *noises)):
            # of elements that only some have nothing can be said
            return math.inf
        noise = max(distance_of_sketches(plain[name], run[name]) for run in noises)
        return max(_MARGIN * noise, _UNITS * unit * plain[name].norm)

    sides = [Record(sketches={("evaluation", step): side}) for side in (plain, outputs, *noises)]
    return compare_tensors(sides[0], sides[1], FixedBand(find_band, runs=sides[2:]), "evaluation", step)


def _evaluate_with_noise(
    ported: PortedTraining, training: PlainTraining, path: Path, batch: MicroBatch, unit: float
) -> Tuple[Sketches, List[Sketches]]:
    """Evaluate in plain PyTorch, with the port's precision, and again with every operator rounded at random."""
    options, rule = ported.model.options, HalfRule.of(ported.model)
    own = copy_training(training)
    own.model.load_state_dict(load_checkpoint(path).model)
    own.model.eval()
    parts = cut_micro_batches(
        *_take_rows(batch, options.accumulation), options.micro_batches_per_call // options.accumulation
    )
    if rule.dtype is None:
        plain, noises = _evaluate_plain(own, parts), []
        for seed in range(_NUM_NOISES):
            with RandomRounding(seed, relative=4 * unit):
                noises.append(_evaluate_plain(own, parts))
        return plain, noises
    runs = []
    for seed in (None, *range(1, 1 + _NUM_NOISES)):
        with half_rounding(own, rule, seed=seed) as rounded:
            runs.append(_evaluate_plain(rounded, parts))
    return runs[0], runs[1:]


def _evaluate_plain(own: PlainTraining, parts: Sequence[MicroBatch]) -> Sketches:
    """Return what the model returns, and the buffers that it has written to; they are as before afterwards."""
    run = PlainRun(own, 1, torch.get_rng_state())
    with torch.no_grad(), keep_buffers(own.model) as before, watch_outputs(own.model) as outputs:
        for args, kwargs in parts:
            run.loss_of(*args, **kwargs)
        written = {name: now for name, now in own.model.named_buffers() if not are_same_tensors(before[name], now)}
        return sketch_all({**join_outputs(outputs), **written})


def _compare_streams(checkpoints: Iterable[Checkpoint], step: int) -> Iterator[Measured]:
    """Compare the device's random streams in checkpoints: an evaluation draws from none that training goes on with."""
    before, after = ((one.training or {}).get("device", {}).get("random", {}) for one in checkpoints)
    is_same = before.get("training") in (None, after.get("training"))
    apart, note = (0.0, "") if is_same else (math.inf, "it went on in evaluation")
    yield Measured("evaluation", "random stream", step, apart, 1.0, 0.0, note)


# -- weights that are taken home ---------------------------------------------------------------------------------------


def _compare_reloaded(
    training: PlainTraining, checkpoint: Checkpoint, live: Sketches, step: int, groups: _Groups
) -> Iterator[Measured]:
    """Load a checkpoint into plain PyTorch: model and optimizer must have what the port had, `live`."""
    own = copy_training(training)
    try:
        own.model.load_state_dict(checkpoint.model)
    except RuntimeError as error:
        yield Measured("reloading", _WEIGHTS, step, math.inf, 0.0, 0.0, " ".join(str(error).split()))
        return
    loaded = sketch_all(dict(own.model.state_dict()))
    if checkpoint.optimizer is not None and checkpoint.optimizer.get("state"):
        own = replace(own, optimizer=_arrange_groups(own, groups, checkpoint.optimizer["param_groups"]))
        own.optimizer.load_state_dict(checkpoint.optimizer)
        loaded.update(sketch_all(name_state(own)))
    # tied weights have several names
    common = [name for name in loaded if name in live]
    ours, theirs = ({name: side[name] for name in common} for side in (live, loaded))
    yield from compare_states("reloading", step, ours, theirs, fault="it is not what the port had", lacking=_APPEARS)


def _compare_saved_settings(ported: PortedTraining, checkpoint: Checkpoint, step: int) -> Iterator[Measured]:
    """Compare the settings of the parameter groups in a checkpoint with those of the optimizer that was trained."""
    saved = (checkpoint.optimizer or {}).get("param_groups")
    live = ported.model.port_optimizer.require_users().param_groups
    if saved is None or len(saved) != len(live):
        note = "there are none" if saved is None else f"{len(saved)} groups were saved of {len(live)}"
        yield Measured("reloading", "settings", step, math.inf, 0.0, 0.0, note)
        return
    for number, (one, other) in enumerate(zip(live, saved)):
        settings = ({key: read_setting(group[key]) for key in group if key != "params"} for group in (one, other))
        differences = iter_setting_differences(*settings)
        note = "; ".join(f"`{name}` was saved as {theirs} and is {ours}" for name, ours, theirs in differences)
        yield Measured("reloading", f"settings of group {number}", step, math.inf if note else 0.0, 1.0, 0.0, note)


def _name_groups(ported: PortedTraining) -> _Groups:
    """Name the parameters of each group of the port's optimizer."""
    names = {id(parameter): name for name, parameter in ported.model.model.named_parameters()}
    groups = ported.model.port_optimizer.require_users().param_groups
    return [[names.get(id(parameter), "") for parameter in group["params"]] for group in groups]


def _arrange_groups(
    own: PlainTraining, groups: _Groups, settings: Sequence[Mapping[str, Any]]
) -> torch.optim.Optimizer:
    """Return an optimizer like `own`'s that has these groups, as the port's has, so that it can load their state."""
    optimizer, parameters = own.optimizer, dict(own.model.named_parameters())
    names = {id(parameter): name for name, parameter in parameters.items()}
    if groups == [[names[id(item)] for item in group["params"]] for group in optimizer.param_groups]:
        return optimizer
    known = [{key: group[key] for key in optimizer.defaults if key in group} for group in settings]
    regrouped = [{**own, "params": [parameters[name] for name in part]} for own, part in zip(known, groups)]
    return type(optimizer)(regrouped, lr=optimizer.defaults["lr"])  # type: ignore[call-arg]
