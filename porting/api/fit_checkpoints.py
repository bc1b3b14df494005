"""Write checkpoints while `fit` trains, and find its place in an epoch that was broken off.

`fit` uses it where a folder is given.
"""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Union

from ..adapters.checkpoint_folder import (
    drop_old_checkpoints,
    link_checkpoint,
    list_checkpoints,
    name_checkpoint,
    read_newest_checkpoint,
    remove_unfinished,
)
from ..adapters.checkpoints import explain_write_errors
from ..adapters.loader_position import begin_epoch_again, read_streams, refuse_unknown_order
from ..diagnostics import CheckpointError, OptionError
from ..executables.folders import LockUnsupportedError, lock_file
from ..options import is_count
from ..support.process import this_instance
from .ported_model import PortedModel

__all__ = ["FitCheckpoints", "FitProgress"]

_LOCK = ".training.lock"

logger = logging.getLogger("porting")


@dataclass
class FitProgress:
    """How far a `fit` has come: complete epochs with their losses, and calls of the epoch that it is in."""

    history: List[float] = field(default_factory=list)
    num_calls: int = 0
    total_loss: float = 0.0
    metrics: Dict[str, List[float]] = field(default_factory=dict)
    """Those of the validation, by name, for each complete epoch."""
    best_score: Optional[float] = None
    best_step: int = 0
    """The optimizer steps behind the best epoch."""
    states: Dict[str, Any] = field(default_factory=dict)
    """Those of the callbacks, as the checkpoint had them."""

    def note_call(self, loss: float) -> None:
        """Add a call's loss."""
        self.total_loss, self.num_calls = self.total_loss + loss, self.num_calls + 1

    def end_epoch(self) -> None:
        """Keep the mean loss of the epoch; NaN without a call."""
        self.history.append(self.total_loss / self.num_calls if self.num_calls else float("nan"))
        self.num_calls, self.total_loss = 0, 0.0


class FitCheckpoints:
    """Writes the checkpoints of one `fit` into a folder, and resumes from the newest.

    `last.pt` there is the newest, and `best.pt` that of the best epoch. Only instance 0 writes. An epoch that was
    broken off begins with the streams that it began with.
    """

    def __init__(
        self,
        ported: PortedModel,
        loader: Iterable[Any],
        folder: Union[str, os.PathLike[str]],
        read_states: Callable[[], Dict[str, Any]],
        *,
        every: Optional[int],
        keep: int,
    ) -> None:
        """Check the settings; nothing is written yet. `read_states` are those of the callbacks."""
        for name, value in {"every": 1 if every is None else every, "keep": keep}.items():
            if not is_count(value):
                raise OptionError.at_caller(
                    "P002",
                    message=f"`{name}` is {value!r}, not a positive number",
                    help=f"pass a whole number from 1 on: `fit(..., {name}=5)`",
                )
        refuse_unknown_order(loader)
        self.progress = FitProgress()
        self._ported = ported
        self._loader = loader
        self._folder = Path(folder)
        self._every = every
        self._keep = keep
        self._read_states = read_states
        self._epoch_start: Optional[Mapping[str, Any]] = None
        self._present: Optional[Mapping[str, Any]] = None
        self._num_steps_written = ported.port_optimizer.num_steps

    @contextmanager
    def hold_folder(self) -> Iterator[None]:
        """Make the folder, and keep it from other trainings while the block runs.

        Raises CheckpointError: K008 where it cannot be made, K009 where another training has it.
        """
        if this_instance().index != 0:
            yield
            return
        with explain_write_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as held:
            if not self._try_hold(held):
                raise CheckpointError.at_caller(
                    "K009",
                    message=f"another training writes its checkpoints into `{self._folder}`",
                    help=(
                        "give each training a folder of its own: `fit(..., checkpoint='another')`",
                        "or start this one again when the other has ended",
                    ),
                )
            remove_unfinished(self._folder)
            yield

    def _try_hold(self, held: ExitStack) -> bool:
        try:
            with explain_write_errors(self._folder):
                return held.enter_context(lock_file(self._folder / _LOCK, timeout_seconds=0.0))
        except CheckpointError as error:
            if isinstance(error.__cause__, LockUnsupportedError):
                return True  # then nobody can be seen
            raise

    def resume(self, num_epochs: int) -> FitProgress:
        """Go on to `num_epochs` from the newest checkpoint in the folder; without one, begin."""
        checkpoint = read_newest_checkpoint(self._folder)
        if checkpoint is None:
            return self.progress
        loop: Any = (checkpoint.training or {}).get("loop")
        if loop is None:
            raise CheckpointError.at_caller(
                "K002",
                message=f"the newest checkpoint in `{self._folder}` was not written by `fit`",
                help="give `fit` a folder of its own, or load that checkpoint by `ported.load` before",
            )
        here, there = _count_calls(self._loader), loop["calls_per_epoch"]
        if loop["num_calls"] and here != there:
            raise CheckpointError.at_caller(
                "K002",
                message=f"the checkpoint was written after {loop['num_calls']} of {there} calls of an epoch",
                notes=f"an epoch of this loader has {here} calls, so that its place in the epoch is not that one",
                help="give `fit` the same dataset and batch size, or load the weights alone into another training",
            )
        self._ported.load(checkpoint, loader=self._loader)
        self.progress = FitProgress(**{each.name: loop[each.name] for each in fields(FitProgress) if each.name in loop})
        self._epoch_start, self._present = loop["epoch_start"], (checkpoint.training or {})["streams"]
        self._num_steps_written = self._ported.port_optimizer.num_steps
        self._link_last_and_best()
        self._tell_what_is_left(num_epochs)
        return self.progress

    def _tell_what_is_left(self, num_epochs: int) -> None:
        num_complete = len(self.progress.history)
        if num_complete >= num_epochs:
            logger.warning(
                "nothing is left to train: the checkpoints in `%s` have %d complete epochs, and %d are asked for; "
                "ask for more, or begin anew in another folder",
                *(self._folder, num_complete, num_epochs),
            )
            return
        logger.warning(
            "the training goes on after step %d, in epoch %d, from the checkpoints in `%s`",
            *(self._num_steps_written, num_complete + 1, self._folder),
        )

    def begin(self) -> FitProgress:
        """Begin anew; OptionError P002 where the folder has checkpoints of an earlier training."""
        if list_checkpoints(self._folder):
            raise OptionError.at_caller(
                "P002",
                message=f"`{self._folder}` holds the checkpoints of an earlier training, and `resume` is False",
                help="name another folder, remove the checkpoints, or let `resume=True` go on from them",
            )
        return self.progress

    def begin_epoch(self) -> Iterator[Any]:
        """Return the batches of the epoch that are still to come."""
        start, present, num_seen = self._epoch_start, self._present, self.progress.num_calls
        self._present = None
        if present is None:
            self._epoch_start = read_streams(self._loader)
            return iter(self._loader)
        if start is None:
            # an epoch that begins behind a checkpoint begins with what that has restored
            self._epoch_start = present
            return begin_epoch_again(self._loader, present)
        return begin_epoch_again(self._loader, start, num_seen=num_seen, present=present)

    def note_call(self) -> None:
        """Write a checkpoint if `every` steps have gone by."""
        if self._every is not None and self._ported.port_optimizer.num_steps // self._every > (
            self._num_steps_written // self._every
        ):
            self._write_checkpoint()

    def note_epoch(self) -> None:
        """Write a checkpoint behind an epoch."""
        self._epoch_start = None
        self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        self._num_steps_written = self._ported.port_optimizer.num_steps
        if this_instance().index != 0:
            return
        self.progress.states = self._read_states()
        self._ported.save(
            name_checkpoint(self._folder, self._num_steps_written),
            loader=self._loader,
            epoch=len(self.progress.history),
            loop={
                **vars(self.progress),
                "epoch_start": self._epoch_start,
                "calls_per_epoch": _count_calls(self._loader),
            },
        )
        self._link_last_and_best()
        with explain_write_errors(self._folder):
            drop_old_checkpoints(self._folder, keep=self._keep, step=self._num_steps_written)

    def _link_last_and_best(self) -> None:
        """Give the newest checkpoint its other names, again where the program ended before it could."""
        newest = name_checkpoint(self._folder, self._num_steps_written)
        if this_instance().index != 0 or not newest.exists():
            return
        is_best = self.progress.best_step == self._num_steps_written and self.progress.best_score is not None
        with explain_write_errors(self._folder):
            for name in ("last.pt", *(["best.pt"] if is_best else [])):
                link_checkpoint(newest, name)


def _count_calls(loader: Any) -> Optional[int]:
    try:
        return len(loader)
    except TypeError:
        return None
