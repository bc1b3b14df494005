"""Adapt a user's PyTorch objects to a device: loss, optimizer, schedule, batches, checkpoints.

Ports pass the backend, a module with PopTorch's API, as an argument. The public names are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from porting.aliases import stand_for
from porting.support.late_names import read_late_names

if TYPE_CHECKING:  # `as` makes a name public
    from porting.adapters.backends import Backend as Backend
    from porting.adapters.backends import find_backend as find_backend
    from porting.adapters.batches import to_ipu_dataloader as to_ipu_dataloader
    from porting.adapters.chainer_weights import load_chainer_npz as load_chainer_npz
    from porting.adapters.checkpoints import Checkpoint as Checkpoint
    from porting.adapters.checkpoints import check_shapes as check_shapes
    from porting.adapters.checkpoints import load_checkpoint as load_checkpoint
    from porting.adapters.checkpoints import load_weights as load_weights
    from porting.adapters.checkpoints import plain_state_dict as plain_state_dict
    from porting.adapters.checkpoints import save_checkpoint as save_checkpoint
    from porting.adapters.fixed_batch import FixedBatchDataset as FixedBatchDataset
    from porting.adapters.fixed_batch import count_real as count_real
    from porting.adapters.fixed_batch import find_dataset as find_dataset
    from porting.adapters.fixed_batch import masked_accuracy as masked_accuracy
    from porting.adapters.fixed_batch import masked_mean as masked_mean
    from porting.adapters.instances import Share as Share
    from porting.adapters.instances import average_over_instances as average_over_instances
    from porting.adapters.instances import partition as partition
    from porting.adapters.instances import sum_over_instances as sum_over_instances
    from porting.adapters.loader_position import read_streams as read_streams
    from porting.adapters.loader_position import set_streams as set_streams
    from porting.adapters.loader_report import LoaderReport as LoaderReport
    from porting.adapters.loss import LossInForward as LossInForward
    from porting.adapters.loss_terms import LossTerm as LossTerm
    from porting.adapters.optimizer_state import carry_state as carry_state
    from porting.adapters.optimizer_state import to_torch_state as to_torch_state
    from porting.adapters.optimizers import default_optimizer as default_optimizer
    from porting.adapters.optimizers import sync_hyper_parameters as sync_hyper_parameters
    from porting.adapters.optimizers import to_backend_optimizer as to_backend_optimizer
    from porting.adapters.padding_checks import check_ignore_label as check_ignore_label
    from porting.adapters.padding_checks import note_batchnorm as note_batchnorm
    from porting.adapters.precision import PrecisionPlan as PrecisionPlan
    from porting.adapters.precision import apply_precision as apply_precision
    from porting.adapters.schedules import SchedulerBridge as SchedulerBridge
    from porting.diagnostics import PortingWarning as PortingWarning
    from porting.diagnostics import notify as notify

if __name__ == "adapters":  # by the link at the top of a clone
    stand_for(__name__, "porting.adapters")

__all__, __getattr__, __dir__ = read_late_names(globals())
