"""A call makes ten optimizer steps."""

from __future__ import annotations

import porting
from porting.models import skip_gram
from porting.recipe_chain import Losses
from porting.recipes.skip_gram.workload import main, make_parts


def train(num_steps: int, path: str = "") -> Losses:
    """Train for whole epochs; return the first `num_steps` losses, and the word vectors."""
    loader, model, optimizer = make_parts(path)
    options = porting.PortOptions(micro_batch=200, device_iterations=10, output_mode="all")
    ported = porting.to_ipu(model, skip_gram.loss, optimizer=optimizer, returns=("loss",), options=options)
    loader = ported.dataloader(loader)
    losses = Losses()
    while len(losses) < num_steps:
        for contexts, centres in loader:
            (loss,) = ported(contexts, centres)
            losses.extend(loss.tolist())
    return Losses(losses[:num_steps], vectors=model.embedding.weight.detach())


if __name__ == "__main__":
    main(train, __doc__)
