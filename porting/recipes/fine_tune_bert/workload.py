"""All steps share this: sentences, the model and its optimizer, and the test."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

from porting.data.sentences import VOCABULARY, make_sentences
from porting.recipe_chain import predicting

# with pretrained weights, lower layers as well: "bert.encoder.layer.0"
FROZEN = ("bert.embeddings",)


class Sentences(Dataset):
    """Sentences as dictionaries, which the model takes by keyword."""

    def __init__(self, num_samples: int, *, seed: int) -> None:
        self.tokens, self.masks, self.labels = make_sentences(num_samples, seed=seed)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Dict[str, torch.Tensor]:
        names = ("input_ids", "attention_mask", "labels")
        return dict(zip(names, (self.tokens[index], self.masks[index], self.labels[index])))


def make_parts() -> Tuple[BertForSequenceClassification, torch.optim.AdamW, Any]:
    """Make the model, which is in training mode, its optimizer and a schedule with warm-up, from the same seed."""
    torch.manual_seed(0)
    model = make_model().train()
    optimizer = make_optimizer(model)
    return model, optimizer, get_linear_schedule_with_warmup(optimizer, num_warmup_steps=20, num_training_steps=240)


def make_model() -> BertForSequenceClassification:
    """Make a small BERT with random weights (a real one: `from_pretrained`) and freeze its embeddings."""
    config = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=32,
        initializer_range=0.1,
    )
    model = BertForSequenceClassification(config)
    for name in FROZEN:
        model.get_submodule(name).requires_grad_(False)
    return model


def make_optimizer(model: torch.nn.Module) -> torch.optim.AdamW:
    """Make an AdamW of the trained weights; biases and LayerNorms do not decay."""
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    exempt = {name for name in trained if name.endswith("bias") or "LayerNorm" in name}
    groups: List[Dict[str, Any]] = [
        {"params": [trained[name] for name in trained if name not in exempt], "weight_decay": 0.01},
        {"params": [trained[name] for name in trained if name in exempt], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.002)


def load_sentences(num_steps: int) -> Tuple[Sentences, Sentences, DataLoader]:
    """Make sentences to train with and to test with, and the loader of the former: batches of 16, in their order."""
    train_set, test_set = Sentences(16 * num_steps, seed=0), Sentences(400, seed=1)
    # a generator of its own, so that the loader takes no random numbers from Dropout
    return train_set, test_set, DataLoader(train_set, batch_size=16, generator=torch.Generator().manual_seed(0))


def measure_accuracy(predict: Callable[..., Any], test_set: Sentences) -> float:
    """Return the share of sentences that `predict` understands."""
    with predicting(predict):
        logits = predict(input_ids=test_set.tokens, attention_mask=test_set.masks).logits
    return (logits.argmax(dim=1) == test_set.labels).float().mean().item()
