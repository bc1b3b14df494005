"""`verify`: proves that a port trains what plain PyTorch trains, with tolerances that are measured, not guessed."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any, Callable, Optional

import torch
from torch import nn

from porting.diagnostics import PortingWarning
from porting.options import PortOptions
from porting.verify.certificate import Certificate
from porting.verify.inputs import PortMaker, make_training
from porting.verify.proof import Proof
from porting.verify.resumption import RunElsewhere

__all__ = ["verify"]


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
    proof = Proof(training, maker, batches, num_steps=steps, seed=seed, tell=tell, run_elsewhere=run_elsewhere)
    with warnings.catch_warnings():
        # the certificate says what is not finite, and on which side
        warnings.filterwarnings("ignore", r"warning\[L008\]", PortingWarning)
        proof.run()
    return proof.make_certificate(seconds=time.perf_counter() - started)
