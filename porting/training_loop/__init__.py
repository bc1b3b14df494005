"""Train a ported model in a loop with validation, loggers, callbacks, early stopping and checkpoints.

`fit` is the loop, and the rest is what can be handed to it. The names of the hooks are Lightning's.
"""

from __future__ import annotations

from .callbacks import Callback, FitState
from .csv_logger import CsvLogger
from .early_stopping import EarlyStopping
from .loggers import Logger
from .loop import History, fit
from .mlflow_logger import MlflowLogger
from .tensorboard_logger import TensorBoardLogger
from .wandb_logger import WandbLogger

__all__ = [
    "Callback",
    "CsvLogger",
    "EarlyStopping",
    "FitState",
    "History",
    "Logger",
    "MlflowLogger",
    "TensorBoardLogger",
    "WandbLogger",
    "fit",
]
