"""Ports of a small GPT and the memory that they need, and a model whose head has the weight of its words."""

from __future__ import annotations

import torch

from porting import PortOptions, memory_report, to_ipu
from porting.models import gpt


def ported_gpt(*, batch=4, optimizer=torch.optim.Adam, layers=4, width=64, length=32, vocabulary=256, **options):
    model = gpt.build("small", num_layers=layers, width=width, num_heads=4, length=length, vocabulary=vocabulary)
    options = PortOptions(micro_batch=batch, **options)
    if options.precision == "float16":
        model.half()  # without the note that it was converted
    ported = to_ipu(
        model,
        gpt.loss,
        optimizer=optimizer(model.parameters(), lr=0.01),
        options=options,
        device="sim",
        returns=["loss"],
    )
    tokens = torch.zeros(options.samples_per_call, length, dtype=torch.int64)
    return ported, (tokens, tokens)


def total(ported_and_batch, **how):
    return memory_report(*ported_and_batch, **how)


class TiedHead(torch.nn.Module):
    """Words and scores of words by one weight."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(65536, 64)
        self.head = torch.nn.Linear(64, 65536, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words, labels):
        return torch.nn.functional.cross_entropy(self.head(self.words(words)), labels)
