"""A word predicts the words around it, in plain PyTorch."""

from __future__ import annotations

from porting.models import skip_gram
from porting.recipe_chain import Losses
from porting.recipes.skip_gram.workload import main, make_parts


def train(num_steps: int, path: str = "") -> Losses:
    """Train for whole epochs; return the first `num_steps` losses, and the word vectors."""
    loader, model, optimizer = make_parts(path)
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
