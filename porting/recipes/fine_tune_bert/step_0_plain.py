"""A BERT of Hugging Face with frozen embeddings trains by AdamW with warm-up, in plain PyTorch."""

from __future__ import annotations

from porting.recipe_chain import Losses
from porting.recipes.fine_tune_bert import workload


def train(num_steps: int) -> Losses:
    """Train on 16 new sentences in each step; return the losses, and the share of other sentences understood."""
    train_set, test_set, loader = workload.load_sentences(num_steps)
    model, optimizer, scheduler = workload.make_parts()
    losses = Losses()
    for batch in loader:
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return Losses(losses, test_accuracy=workload.measure_accuracy(model, test_set))


if __name__ == "__main__":
    print(train(num_steps=240))
