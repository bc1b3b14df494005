"""List the remedies for models of transformers whose code reads values of tensors in `forward`.

The library table has them, each for the versions that it was tested with.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any, Callable

import torch

from porting.remedies import (
    transformers_audio,
    transformers_detection,
    transformers_layer_drop,
    transformers_longformer,
)
from porting.remedies.device_values import is_on_device
from porting.remedies.entries import Edit, Patch, Remedy

__all__ = ["TRANSFORMERS"]

_MODELS = "transformers.models"


def _patch(model: str, function: str, *edits: Edit) -> Patch:
    return Patch(f"{_MODELS}.{model}.modeling_{model}:{function}", edits=edits)


# -- the last token's state --------------------------------------------------------------------------------------------

# the state of the last end-of-sequence token of each sample, read by its place instead of a mask
_LAST = (
    "{0}.gather(1, (eos_mask.int() * torch.arange(eos_mask.shape[1], dtype=torch.int32, device=eos_mask.device))"
    ".argmax(1)[:, None, None].expand(-1, 1, {0}.shape[-1]))[:, 0]"
)


def _read_last_token(states: str, batch: str, size: str) -> Any:
    return (
        Edit("torch.unique_consecutive(eos_mask.sum(1)).numel() == 1,", "True,"),
        Edit(f"selected = {states}[eos_mask, :]", f"selected = {states}"),
        Edit(f"selected.view({batch}, -1, {size})[:, -1, :]", _LAST.format(states)),
    )


_BART = _read_last_token("hidden_states", "hidden_states.size(0)", "hidden_states.size(-1)")
# as it was written before transformers 5
_BART_4 = (
    Edit("len(torch.unique_consecutive(eos_mask.sum(1))) > 1", "False"),
    Edit(
        "hidden_states[eos_mask, :].view(hidden_states.size(0), -1, hidden_states.size(-1))[",
        _LAST.format("hidden_states").replace(")[:, 0]", ")") + "[",
    ),
)
_T5 = _read_last_token("sequence_output", "batch_size", "hidden_size")

# -- single models -----------------------------------------------------------------------------------------------------

# a loss of the samples with a label is the loss that ignores the others
_LABELLED = (
    Edit("label_index = (labels >= 0).nonzero()", "label_index = labels.view(-1, 1)"),
    Edit(
        "torch.gather(\n                            "
        "logits, 0, label_index.expand(label_index.size(0), logits.size(1))\n                        )",
        "(\n                            logits\n                        )",
    ),
    Edit("torch.gather(labels, 0, label_index.view(-1))", "labels.masked_fill(labels < 0, -100)"),
)

_NO_PADDING = Edit("if not padding_mask.any():", "if False:")


def _compute_all_experts(weights: str) -> Any:
    """Let each expert compute all tokens, of which those that did not choose it have a weight of zero."""
    return (
        Edit(
            "expert_hit = torch.greater(expert_mask.sum(dim=(-1, -2)), 0).nonzero()",
            "expert_hit = [[index] for index in range(self.num_experts)]",
        ),
        Edit(
            "idx, top_x = torch.where(expert_mask[expert_idx].squeeze(0))",
            f"chosen = expert_mask[expert_idx[0]].t().to({weights}.dtype)",
        ),
        Edit("hidden_states[None, top_x].reshape(-1, hidden_states.shape[-1])", "hidden_states"),
        Edit(f"* {weights}[top_x, idx, None]", f"* ({weights} * chosen).sum(-1, keepdim=True)"),
        Edit(
            "final_hidden_states.index_add_(0, top_x, current_hidden_states.to(hidden_states.dtype))",
            "final_hidden_states = final_hidden_states + current_hidden_states.to(hidden_states.dtype)",
        ),
    )


# a router casts its weights in each call, which changes nothing but the first time
_KEPT_CLASSIFIER = Edit(
    "self.classifier = self.classifier.to(self.dtype)",
    "self.classifier.weight.dtype == self.dtype or self.classifier.to(self.dtype)",
)
_ROUTERS = (
    ("switch_transformers", "SwitchTransformersTop1Router.forward"),
    ("nllb_moe", "NllbMoeTop2Router._cast_classifier"),
)

_LENGTHS = Edit("assert lengths.max().item() <= slen", "pass")

_LANGUAGES = (
    Edit("lang_hidden_states = hidden_states[lang_mask]", "lang_hidden_states = hidden_states"),
    Edit(
        "new_hidden_states[lang_mask] = adapted_lang_hidden_states",
        "new_hidden_states = torch.where(lang_mask[:, None, None], adapted_lang_hidden_states, new_hidden_states)",
    ),
)


_REFORMER = f"{_MODELS}.reformer.modeling_reformer"
_LAYERS_KEPT = (
    Edit("with torch.no_grad():", "if True:"),
    # for a dropout that is the same when the layers are computed again
    Edit("self._init_attention_seed()", "pass"),
    Edit("self._init_feed_forward_seed()", "pass"),
)


def _run_layers(_original: Callable[..., Any], *args: Any) -> Any:
    function = sys.modules[_REFORMER]._ReversibleFunction
    return function.forward(SimpleNamespace(save_for_backward=lambda *_kept: None), *args)


def _find_attention_span(
    _original: Callable[..., Any], query_layer: torch.Tensor, key_layer: torch.Tensor, max_relative_positions: int
) -> int:
    return min(max(query_layer.size(-2), key_layer.size(-2)), max_relative_positions)


def _rotate_whole(
    original: Callable[..., Any],
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Rotate all features, where otherwise a part without elements would be left over and joined again."""
    if cos.shape[-1] != q.shape[-1] or args or kwargs:
        return original(q, k, cos, sin, *args, **kwargs)
    rotate_half = original.__globals__["rotate_half"]
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return tuple((x * cos) + (rotate_half(x) * sin) for x in (q, k))


def _mix_by_cosines(original: Callable[..., Any], self: Any, hidden_states: torch.Tensor) -> Any:
    """Compute the real part of the Fourier transform over time and features: cos x cos - sin x sin."""
    if not is_on_device(hidden_states):
        return original(self, hidden_states)
    time, features = (_make_waves(size, hidden_states) for size in hidden_states.shape[1:])
    mixed = [torch.matmul(torch.matmul(rows, hidden_states), columns) for rows, columns in zip(time, features)]
    return (mixed[0] - mixed[1],)


def _make_waves(size: int, like: torch.Tensor) -> Any:
    """Make the cosines and sines of the discrete Fourier transform of `size` values, as constants."""
    steps = torch.arange(size, dtype=torch.int64, device="cpu")
    # the angle's integer part is removed exactly, before there is rounding
    turns = torch.outer(steps, steps).remainder(size).to(torch.float64) * (2 * torch.pi / size)
    waves = (turns.cos().to(torch.float32), turns.sin().to(torch.float32))
    return [wave.to(like.device).to(like.dtype) for wave in waves]


def _observe_range(original: Callable[..., Any], self: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Keep the range of an activation on the device, where the first step is told from others by its buffers."""
    names = ("pre_act_scaling_factor", "identity", "identity_scaling_factor", "specified_min", "specified_max")
    identity = {**dict(zip(names, args)), **kwargs}.get("identity")
    if not self.training or self.quant_mode or not is_on_device(x):
        return original(self, x, *args, **kwargs)
    activation = x if identity is None else identity + x
    low, high = activation.detach().min(), activation.detach().max()
    is_first = (self.x_min.min() > -1.1e-5) & (self.x_max.max() < 1.1e-5)
    for buffer, value, choose in ((self.x_min, low, torch.min), (self.x_max, high, torch.max)):
        if self.act_range_momentum == -1:
            later = choose(buffer, value)
        else:
            later = buffer * self.act_range_momentum + value * (1 - self.act_range_momentum)
        buffer.copy_(torch.where(is_first, buffer + value, later))
    return activation, None


# rows are sorted by their experts: instead of how many each has, the expert of each row is passed on
_EXPERT_OF_ROW = Edit("expert_size = expert_size.tolist()", "expert_size = top_k_indices.flatten().sort(0)[0]")


def _multiply_by_expert(
    _original: Callable[..., Any], self: Any, inputs: torch.Tensor, expert_of_row: torch.Tensor
) -> torch.Tensor:
    return torch.bmm(self.weight[expert_of_row], inputs.unsqueeze(-1)).squeeze(-1)


# an implementation whose shapes do not depend on which tokens an expert gets
_BATCHED_EXPERTS = Patch(
    "transformers.integrations.moe:ExpertsInterface.get_interface",
    replacement=lambda _original, self, *_args, **_kwargs: self["batched_mm"],
)


def _make_remedy(name: str, reason: str, *patches: Patch, first: str = "5.23", below: str = "6") -> Remedy:
    """Make a remedy for the versions that it was tested with, and those between them that have the same functions."""
    return Remedy(name, "transformers", first=first, below=below, reason=reason, patches=patches)


_BARTS = (
    ("bart", "Bart"),
    ("bigbird_pegasus", "BigBirdPegasus"),
    ("mbart", "MBart"),
    ("mvp", "Mvp"),
    ("plbart", "PLBart"),
)


TRANSFORMERS = (
    Remedy(
        "layer-drop",
        "transformers",
        first="4.10",
        below="6",
        reason="LayerDrop at rate 0 compares a drawn number on the host",
        functions=transformers_layer_drop.FUNCTIONS,
    ),
    _make_remedy(
        "last-token",
        "a classifier finds its end-of-sequence tokens by a mask, whose number of rows is not known",
        *(_patch(model, f"{prefix}ForSequenceClassification.forward", *_BART) for model, prefix in _BARTS),
        *(
            _patch(model, f"{prefix}ForSequenceClassification.forward", *_T5)
            for model, prefix in (("t5", "T5"), ("mt5", "MT5"), ("umt5", "UMT5"))
        ),
    ),
    _make_remedy(
        "last-token",
        "a classifier finds its end-of-sequence tokens by a mask, whose number of rows is not known",
        *(_patch(model, f"{prefix}ForSequenceClassification.forward", *_BART_4) for model, prefix in _BARTS),
        first="4.46",
        below="5",
    ),
    _make_remedy(
        "global-attention",
        "the attention of Longformer and LED reads how many positions are global; all scores are computed instead, "
        "which takes memory that grows with the square of the length",
        *transformers_longformer.PATCHES,
        first="4.46",
    ),
    _make_remedy(
        "sequence-lengths",
        "a check of lengths reads them on the host",
        _patch("xlm", "XLMModel.forward", _LENGTHS),
        _patch("flaubert", "FlaubertModel.forward", _LENGTHS),
        first="4.46",
    ),
    _make_remedy(
        "padding-mask",
        "whether there is padding is read on the host; a mask without any changes nothing",
        _patch("fsmt", "make_padding_mask", _NO_PADDING),
        first="4.46",
    ),
    _make_remedy(
        "whole-rotation",
        "rotary positions of all features leave a part without elements, which the device has no tensors for",
        *(
            Patch(f"{_MODELS}.{model}.modeling_{model}:apply_rotary_pos_emb", replacement=_rotate_whole)
            for model in ("phi3", "phi4_multimodal")
        ),
    ),
    _make_remedy(
        "speech-labels", "a loss for speech checks its labels on the host", *transformers_audio.PATCHES, first="4.46"
    ),
    _make_remedy(
        "reversible-layers",
        "Reformer computes its layers again backwards, by an autograd function of its own; they are kept instead",
        Patch(f"{_REFORMER}:_ReversibleFunction.apply", replacement=_run_layers),
        Patch(f"{_REFORMER}:ReformerLayer.forward", edits=_LAYERS_KEPT),
        first="4.46",
    ),
    _make_remedy(
        "labelled-samples",
        "a loss looks for the samples that have a label, whose number is not known",
        _patch("deberta", "DebertaForSequenceClassification.forward", *_LABELLED),
        _patch("deberta_v2", "DebertaV2ForSequenceClassification.forward", *_LABELLED),
        first="4.46",
    ),
    _make_remedy(
        "attention-span",
        "a length that Python knows is put into a tensor, and read again to cut a table",
        Patch(f"{_MODELS}.deberta.modeling_deberta:compute_attention_span", replacement=_find_attention_span),
    ),
    _make_remedy(
        "language-adapters",
        "each adapter reads the samples of its language by a mask; all are computed for all samples instead",
        _patch("xmod", "XmodOutput.lang_adapter", *_LANGUAGES),
    ),
    _make_remedy(
        "fourier-mixing",
        "the Fourier transform has complex numbers, which the device lacks",
        Patch(f"{_MODELS}.fnet.modeling_fnet:FNetBasicFourierTransform.forward", replacement=_mix_by_cosines),
        first="4.46",
    ),
    _make_remedy(
        "activation-range",
        "I-BERT reads the range of its activations on the host, and assigns it to its buffers",
        Patch(f"{_MODELS}.ibert.quant_modules:QuantAct.forward", replacement=_observe_range),
        first="4.46",
    ),
    _make_remedy(
        "finite-activations",
        "whether all activations are finite is read on the host; what is clamped where they are not is chosen instead",
        *transformers_detection.PATCHES,
    ),
    _make_remedy(
        "finite-activations",
        "whether activations are infinite is read on the host; what is clamped where they are is chosen instead",
        *transformers_detection.PATCHES_4,
        first="4.46",
        below="5",
    ),
    _make_remedy(
        "static-experts",
        "experts compute the tokens that they got, whose number is not known; each token takes the weights of its "
        "experts instead, or each expert computes all tokens",
        _patch("switch_transformers", "SwitchTransformersExperts.forward", *_compute_all_experts("routing_weights")),
        *(_patch(model, function, _KEPT_CLASSIFIER) for model, function in _ROUTERS),
        _patch("nllb_moe", "NllbMoeExperts.forward", *_compute_all_experts("router_probs")),
        _patch("jetmoe", "JetMoeTopKGating.forward", _EXPERT_OF_ROW),
        Patch(f"{_MODELS}.jetmoe.modeling_jetmoe:JetMoeParallelExperts.forward", replacement=_multiply_by_expert),
        _BATCHED_EXPERTS,
    ),
)
