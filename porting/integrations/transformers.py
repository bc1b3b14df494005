"""Run transformers on a device: its `Trainer` and `Seq2SeqTrainer` by their own names, and batches of one length.

Arguments, callbacks, optimizers, schedules, checkpoints and logs are the library's. In a training or prediction step
the model runs on the device, see `DeviceCalls`; clipping and accumulation are arithmetic on gradients, on the host.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, Callable, ContextManager, Dict, Mapping, Optional, Sequence

import torch
from torch.nn import functional

from ..diagnostics import BatchError, OptionError, require_extra
from ..options import PortOptions
from .device_calls import DeviceCalls

if TYPE_CHECKING:
    from transformers import TrainingArguments

__all__ = ["FixedLength", "Seq2SeqTrainer", "Trainer"]

_NEEDS = "`porting.integrations.transformers` needs transformers and accelerate"
require_extra("accelerate", extra="transformers", message=_NEEDS)
_transformers = require_extra("transformers", extra="transformers", message=_NEEDS)
_Trainer: Any = _transformers.Trainer
_Seq2SeqTrainer: Any = _transformers.Seq2SeqTrainer

_logger = logging.getLogger("porting")

_PRECISION = "leave it out, and say `Trainer(..., port_options=PortOptions(precision='mixed'))`, or 'bfloat16'"
_ONE = "leave it out: one process drives one device"

# arguments by which the library would change the model itself, and the device's options for the same
_REFUSED = {
    "fp16": _PRECISION,
    "bf16": _PRECISION,
    "fp16_full_eval": _PRECISION,
    "bf16_full_eval": _PRECISION,
    "torch_compile": "leave it out: the model is compiled for the device",
    "gradient_checkpointing": "leave it out: it recomputes on the host what the device computes",
    "neftune_noise_alpha": "leave it out: its noise depends on a number that is read from the batch",
    "use_liger_kernel": "leave it out: its kernels are for GPUs",
    "deepspeed": _ONE,
    "fsdp": _ONE,
    "parallelism_config": _ONE,
}


class _OnDevice:
    """The change to the library's trainer: the model's calls in its steps run on the device."""

    model: Any
    args: Any

    def __init__(
        self,
        *args: Any,
        port_options: Optional[PortOptions] = None,
        device: str = "auto",
        modules: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        """Take the library's arguments, and those of `DeviceCalls`.

        Raises OptionError P002 for training arguments that the device does in another way.
        """
        super().__init__(*args, **kwargs)
        _refuse_arguments(self.args)
        self._settings: Dict[str, Any] = {"options": port_options, "device": device, "modules": modules}
        self._calls: Any = None

    @property
    def device_calls(self) -> DeviceCalls:
        """The calls on the device; its `reports()` count and time them."""
        if self._calls is None or self._calls.model is not self.model:  # `model_init` makes a new one
            self._calls = DeviceCalls(self.model, **self._settings)
        found: DeviceCalls = self._calls
        return found

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Do as the library's, with the model on the device."""
        with self.device_calls.active():
            return super().training_step(*args, **kwargs)  # type: ignore[misc]

    def prediction_step(self, *args: Any, **kwargs: Any) -> Any:
        """Do as the library's, with the model on the device; it generates on the host."""
        with self._where_it_predicts():
            return super().prediction_step(*args, **kwargs)  # type: ignore[misc]

    def _where_it_predicts(self) -> ContextManager[None]:
        if getattr(self.args, "predict_with_generate", False):
            # each token would be a batch of another shape
            _logger.info("`predict_with_generate` runs on the host")
            return contextlib.nullcontext()
        return self.device_calls.active()


class Trainer(_OnDevice, _Trainer):
    """transformers' `Trainer`, whose model runs on the device; `port_options` and `device` are those of `to_ipu`."""


class Seq2SeqTrainer(_OnDevice, _Seq2SeqTrainer):
    """transformers' `Seq2SeqTrainer`, whose model runs on the device, except while it generates."""


def _refuse_arguments(arguments: TrainingArguments) -> None:
    """Raise OptionError P002 for training arguments that would not have their usual effect."""
    fault, remedy = "", ""
    for name, advice in _REFUSED.items():
        if getattr(arguments, name, None):
            fault, remedy = f"`TrainingArguments({name}={getattr(arguments, name)!r})` is for another device", advice
    if not fault and arguments.device.type != "cpu":
        fault = f"`TrainingArguments` chooses the device `{arguments.device}`, to which the model would be moved"
        remedy = "`TrainingArguments(use_cpu=True)`: weights are on the host, and reach the device with each call"
    elif not fault and arguments.world_size > 1:
        fault, remedy = "several processes share this training", "start one: it drives one device"
    if fault:
        raise OptionError.at_caller("P002", message=fault, help=remedy)


class FixedLength:
    """A data collator that pads the batches of another one to sequences of `length`, so that one graph is enough.

    Tensors of two dimensions [rows, tokens] get more columns: labels -100, which the library's losses ignore,
    `input_ids` the `pad_token_id`, all others 0. An attention mask is made where there is none, so that padding is
    not attended to. BatchError B001 for a sequence that is longer.

    >>> collate = FixedLength(lambda rows: {"input_ids": torch.tensor(rows)}, length=4)
    >>> batch = collate([[5, 6, 7]])
    >>> batch["input_ids"].tolist(), batch["attention_mask"].tolist()
    ([[5, 6, 7, 0]], [[1, 1, 1, 0]])
    """

    def __init__(
        self, collator: Callable[[Any], Mapping[str, Any]], *, length: int, pad_token_id: int = 0, label_pad: int = -100
    ) -> None:
        """Keep the collator; `length` counts tokens."""
        self.collator = collator
        self.length = length
        self._fill = {"input_ids": pad_token_id, "decoder_input_ids": pad_token_id, "labels": label_pad}

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
        """Collate and pad."""
        batch = dict(self.collator(features))
        ids = batch.get("input_ids")
        if isinstance(ids, torch.Tensor) and "attention_mask" not in batch:
            batch["attention_mask"] = torch.ones_like(ids)
        return {name: self._pad_value(name, value) for name, value in batch.items()}

    def _pad_value(self, name: str, value: object) -> Any:
        if not isinstance(value, torch.Tensor) or value.dim() != 2:
            return value
        missing = self.length - value.shape[1]
        if missing < 0:
            raise BatchError.at_caller(
                "B001",
                message=f"`{name}` has {value.shape[1]} tokens, more than the length of {self.length}",
                help=f"truncate the texts: `tokenizer(text, truncation=True, max_length={self.length})`",
            )
        return functional.pad(value, (0, missing), value=self._fill.get(name, 0))
