"""An executor's own options: a frozen copy of the user's, with the output mode decided."""

from __future__ import annotations

from typing import Optional

from .._scopes.execution_strategies import PipelinedExecution, ShardedExecution
from ..enums import OutputMode
from ..errors import createPoptorchError
from ..options import Options

__all__ = ["executor_options"]


def executor_options(options: Optional[Options], *, training: bool) -> Options:
    """Freeze the user's `options` and return the copy for an executor, which is not frozen yet.

    Only the copy gets the mode's default output mode; anchors without a mode of their own get it too. Raises
    `poptorch.Error` for other types and for gradient accumulation in inference.
    """
    if options and not isinstance(options, Options):
        raise createPoptorchError(f"Invalid type: 'options' is of type {type(options)} (Expected poptorch.Options)")
    if options:
        options._freeze()
        own = options.clone()
    else:
        own = Options()
    if own.defaultOutputMode():
        own.outputMode(OutputMode.Final if training else OutputMode.All)
    _complete_anchors(own)
    if not training and own.Training.gradient_accumulation != 1:
        raise createPoptorchError(_accumulation_message(own))
    return own


def _complete_anchors(options: Options) -> None:
    """Give anchors without an output mode of their own that of the model."""
    for anchor in options.anchored_tensors.values():
        inherits = anchor[1]
        if inherits:
            anchor[2] = OutputMode(options.output_mode)
            anchor[3] = options.output_return_period if anchor[2] == OutputMode.EveryN else 1


def _accumulation_message(options: Options) -> str:
    message = (
        "You must set poptorch.Options().Training.gradientAccumulation to 1 or leave it as its default value (1) when "
        "running a poptorch.inferenceModel()."
    )
    strategy = options._execution_strategy
    if isinstance(strategy, PipelinedExecution) and not isinstance(strategy, ShardedExecution):
        message += (
            " Use poptorch.Options().deviceIterations to process a sufficient number of batches each run for pipelined "
            "execution instead."
        )
    return message
