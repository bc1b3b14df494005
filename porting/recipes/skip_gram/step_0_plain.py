"""Plain PyTorch: the words around a word predict it."""

from __future__ import annotations

from typing import Optional

import torch

from porting.models import skip_gram
from porting.recipe_chain import Losses
from porting.recipes.skip_gram.workload import WINDOW, main, make_loader


def train(num_steps: int, path: Optional[str] = None) -> Losses:
    """Train for whole epochs; return the first `num_steps` losses, and the word vectors."""
    torch.manual_seed(0)
    loader, vocabulary = make_loader(path)
    model = skip_gram.build("small", vocabulary=len(vocabulary), window=WINDOW)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = Losses()
    while len(losses) < num_steps:
        for contexts, centres in loader:
            optimizer.zero_grad()
            loss = skip_gram.loss(model(contexts), centres)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return Losses(losses[:num_steps], vectors=model.embedding.weight.detach())


if __name__ == "__main__":
    main(train, __doc__)
