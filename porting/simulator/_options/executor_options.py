"""Copy the user's options for one executor: the copy is frozen, and its output mode is decided.

Each executor makes one when it is constructed.
"""

from __future__ import annotations

from typing import Optional

from .._scopes.execution_strategies import PipelinedExecution, ShardedExecution
from ..enums import OutputMode
from ..errors import createPoptorchError
from ..options import Options

__all__ = ["make_executor_options", "uses_pipeline"]


def make_executor_options(options: Optional[Options], *, training: bool) -> Options:
    """Freeze the user's `options` and return the copy for an executor, which is not frozen yet.

    Only the copy gets the mode's default output mode; anchors without a mode of their own get it too. Raises
    `poptorch.Error` for other types and for gradient accumulation in inference.
    """
    if options and not isinstance(options, Options):
        raise createPoptorchError(f"Invalid type: 'options' is of type {type(options)} (Expected poptorch.Options)")
    # PopTorch freezes the user's object: a later change, which could have no effect, is an error.
    if options:
        options._freeze()
    own = options.clone() if options else Options()
    if own.defaultOutputMode():
        own.outputMode(OutputMode.Final if training else OutputMode.All)
    for anchor in own.anchored_tensors.values():
        _long_name, inherits, _mode, _period = anchor
        if inherits:
            anchor[2] = OutputMode(own.output_mode)
            anchor[3] = own.output_return_period if anchor[2] == OutputMode.EveryN else 1
    if not training and own.Training.gradient_accumulation != 1:
        message = (
            "You must set poptorch.Options().Training.gradientAccumulation to 1 or leave it as its default value (1) "
            "when running a poptorch.inferenceModel()."
        )
        if uses_pipeline(own):
            message += (
                " Use poptorch.Options().deviceIterations to process a sufficient number of batches each run for "
                "pipelined execution instead."
            )
        raise createPoptorchError(message)
    return own


def uses_pipeline(options: Options) -> bool:
    """Tell whether the stages of a model run at the same time."""
    strategy = options._execution_strategy
    # sharded execution is derived from it in PopTorch, but runs one stage after the other
    return isinstance(strategy, PipelinedExecution) and not isinstance(strategy, ShardedExecution)
