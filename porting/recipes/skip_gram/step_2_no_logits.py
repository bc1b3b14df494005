"""Only the loss comes back: the logits stay on the device."""

from __future__ import annotations

from typing import List, Optional, Tuple

import torch

import porting
from porting.models import skip_gram
from porting.recipes.skip_gram.workload import WINDOW, load_text, main, make_loader


def train(num_steps: int) -> List[float]:
    """Train for whole epochs and return the losses of the first `num_steps` optimizer steps."""
    return train_and_look(num_steps)[0]


def train_and_look(num_steps: int, path: Optional[str] = None) -> Tuple[List[float], torch.Tensor]:
    """Train as `train` does; return its losses and the word vectors."""
    torch.manual_seed(0)
    tokens, vocabulary, _topics = load_text(path)
    loader = make_loader(tokens)
    model = skip_gram.build("small", vocabulary=len(vocabulary), window=WINDOW)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    ported = porting.to_ipu(model, skip_gram.loss, optimizer=optimizer, returns=("loss",))
    loader = ported.dataloader(loader)
    losses: List[float] = []
    while len(losses) < num_steps:
        for contexts, centres in loader:
            (loss,) = ported(contexts, centres)
            losses.append(loss.item())
    return losses[:num_steps], model.embedding.weight.detach()


if __name__ == "__main__":
    main(train_and_look, __doc__)
