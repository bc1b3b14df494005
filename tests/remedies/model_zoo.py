"""Small models of transformers, one for each of many classes, and batches for them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any, Dict, Tuple

import torch
from torch import nn

# what makes a model small, for the configurations that have it
_SMALL: Dict[str, Any] = {
    "attention_head_size": 8,
    "classifier_proj_size": 32,
    "conv_dim": [32, 32],
    "conv_kernel": [8, 8],
    "conv_stride": [4, 4],
    "d_ff": 48,
    "d_inner": 48,
    "d_kv": 8,
    "d_model": 32,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 48,
    "decoder_layers": 2,
    "dim": 32,
    "emb_dim": 32,
    "embedding_size": 32,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "encoder_layers": 2,
    "ffn_dim": 48,
    "hidden_dim": 48,
    "hidden_size": 32,
    "image_size": 32,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "moe_intermediate_size": 16,
    "n_ctx": 64,
    "n_embd": 32,
    "n_head": 4,
    "n_heads": 4,
    "n_inner": 48,
    "n_layer": 2,
    "n_layers": 2,
    "n_positions": 64,
    "num_attention_heads": 4,
    "num_conv_pos_embedding_groups": 2,
    "num_conv_pos_embeddings": 16,
    "num_decoder_layers": 2,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "num_feat_extract_layers": 2,
    "num_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "num_labels": 3,
    "num_layers": 2,
    "num_local_experts": 4,
    "num_mel_bins": 16,
    "patch_size": 8,
    "rotary_dim": 4,
    "vocab_size": 99,
    "word_embed_proj_dim": 32,
}
_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


@dataclass(frozen=True)
class Entry:
    """A class of transformers, settings of its configuration, and what is special about its batch."""

    name: str
    settings: Dict[str, Any] = field(default_factory=dict)
    ends: bool = False
    separators: Tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.name


def make_model(entry: Entry) -> nn.Module:
    """Make the model of an entry, the same one each time, without dropout."""
    import transformers

    kind = getattr(transformers, entry.name)
    plain = kind.config_class()
    small = {
        name: value
        for name, value in _SMALL.items()
        if isinstance(getattr(plain, name, None), (list, tuple) if isinstance(value, list) else type(value))
        and not isinstance(getattr(plain, name), bool)
    }
    still = {name: 0.0 for name, value in plain.to_dict().items() if "drop" in name and isinstance(value, float)}
    config = kind.config_class(**{**small, **still, **_TOKENS, "use_cache": False, **entry.settings})
    config.num_labels = 2 if "QuestionAnswering" in entry.name else 3
    torch.manual_seed(0)
    return kind(config).train()


def make_batch(entry: Entry, model: Any) -> Dict[str, torch.Tensor]:
    """Make two samples with labels for a model, the second of them with padding."""
    drawn = torch.Generator().manual_seed(5)
    names = inspect.signature(model.forward).parameters
    batch: Dict[str, torch.Tensor] = {}
    shape = (2, 3, 16) if "MultipleChoice" in entry.name else (2, 16)
    if "pixel_values" in names:
        batch["pixel_values"] = torch.randn(2, 3, 32, 32, generator=drawn)
    elif "input_values" in names:
        batch["input_values"] = torch.randn(2, 1600, generator=drawn)
    else:
        batch["input_ids"] = torch.randint(3, 90, shape, generator=drawn)
        if entry.ends:
            batch["input_ids"][..., -1] = 2
        for place in entry.separators:
            batch["input_ids"][..., place] = 2
        if "attention_mask" in names:
            batch["attention_mask"] = torch.ones(shape, dtype=torch.int64)
        if "attention_mask" in names and not entry.ends:
            batch["attention_mask"][..., 0, -3:] = 0
    return {**batch, **_make_labels(entry, names, shape, drawn)}


def _make_labels(entry: Entry, names: Any, shape: Any, drawn: torch.Generator) -> Dict[str, torch.Tensor]:
    if "start_positions" in names:
        return {"start_positions": torch.tensor([1, 2]), "end_positions": torch.tensor([3, 4])}
    if any(part in entry.name for part in ("Sequence", "Image", "MultipleChoice", "Audio")):
        return {"labels": torch.tensor([1, 0])}
    if entry.name == "ElectraForPreTraining":
        return {"labels": torch.randint(0, 2, shape, generator=drawn)}
    most = 3 if "Token" in entry.name else 90
    labels = torch.randint(0, most, (2, 4) if "CTC" in entry.name else shape, generator=drawn)
    return {"labels": labels}


def train_plainly(model: Any, batch: Dict[str, torch.Tensor]) -> Any:
    """Return the losses of three steps of plain PyTorch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _step in range(3):
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
