"""Two micro-batches of 8 sentences make an optimizer step."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import torch
from torch.utils.data import DataLoader, Dataset, default_collate
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

import porting
from porting.data.sentences import VOCABULARY, make_sentences

# with pretrained weights, lower layers as well: "bert.encoder.layer.0"
FROZEN = ("bert.embeddings",)


class Sentences(Dataset):
    """Sentences as the dictionaries that the model takes by keyword."""

    def __init__(self, num_samples: int, *, seed: int) -> None:
        self.tokens, self.masks, self.labels = make_sentences(num_samples, seed=seed)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Dict[str, torch.Tensor]:
        names = ("input_ids", "attention_mask", "labels")
        return dict(zip(names, (self.tokens[index], self.masks[index], self.labels[index])))


def make_model() -> BertForSequenceClassification:
    """Make a small BERT with random weights (a real one: `from_pretrained`) and freeze what is not to be trained."""
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
    """Make an AdamW of what is trained; biases and LayerNorms do not decay."""
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    exempt = {name for name in trained if name.endswith("bias") or "LayerNorm" in name}
    groups: List[Dict[str, Any]] = [
        {"params": [trained[name] for name in trained if name not in exempt], "weight_decay": 0.01},
        {"params": [trained[name] for name in trained if name in exempt], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.002)


def train(num_steps: int) -> List[float]:
    """Train on 16 new sentences in each of `num_steps` optimizer steps and return the losses."""
    return train_and_test(num_steps)[0]


def train_and_test(num_steps: int) -> Tuple[List[float], float]:
    """Train as `train` does; return its losses and the share of other sentences that are understood afterwards."""
    torch.manual_seed(0)
    train_set, test_set = Sentences(16 * num_steps, seed=0), Sentences(400, seed=1)
    # a generator of its own, so that the loader takes no random numbers from Dropout
    loader = DataLoader(train_set, batch_size=16, generator=torch.Generator().manual_seed(0))
    model = make_model().train()
    optimizer = make_optimizer(model)
    scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=20, num_training_steps=240)
    options = porting.PortOptions(micro_batch=8, accumulation=2, output_mode="all")
    ported = porting.to_ipu(model, optimizer=optimizer, options=options)
    scheduler = ported.scheduler(scheduler)
    loader = ported.dataloader(loader)
    ported.compile(**default_collate([train_set[index] for index in range(options.samples_per_call)]))
    losses: List[float] = []
    for batch in loader:
        loss = ported(**batch).loss
        scheduler.step()
        losses.append(loss.mean().item())

    logits = ported.inference()(input_ids=test_set.tokens, attention_mask=test_set.masks).logits
    return losses, (logits.argmax(dim=1) == test_set.labels).float().mean().item()


if __name__ == "__main__":
    losses, accuracy = train_and_test(num_steps=240)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, test accuracy {accuracy:.3f}")
