"""Only the loss comes back: the logits stay on the device."""

from __future__ import annotations

from typing import Optional

import torch

import porting
from porting.models import skip_gram
from porting.recipe_chain import Losses
from porting.recipes.skip_gram.workload import WINDOW, main, make_loader


def train(num_steps: int, path: Optional[str] = None) -> Losses:
    """Train for whole epochs; return the first `num_steps` losses, and the word vectors."""
    torch.manual_seed(0)
    loader, vocabulary = make_loader(path)
    model = skip_gram.build("small", vocabulary=len(vocabulary), window=WINDOW)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    ported = porting.to_ipu(model, skip_gram.loss, optimizer=optimizer, returns=("loss",))
    loader = ported.dataloader(loader)
    losses = Losses()
    while len(losses) < num_steps:
        for contexts, centres in loader:
            (loss,) = ported(contexts, centres)
            losses.append(loss.item())
    return Losses(losses[:num_steps], vectors=model.embedding.weight.detach())


if __name__ == "__main__":
    main(train, __doc__)
