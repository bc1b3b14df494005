"""The transformer only looks back."""

from __future__ import annotations

import math

import pytest
import torch

from porting.models.gpt import GPT, GPTConfig, example_batch, loss

SMALL = GPTConfig(num_layers=2, num_heads=2, width=8, length=6, vocabulary=11)


def test_logits_depend_on_no_later_token():
    model = GPT(SMALL)
    tokens, _ = example_batch(SMALL, batch_size=2)
    changed = tokens.clone()
    changed[:, 3] = (changed[:, 3] + 1) % SMALL.vocabulary

    before, after = model(tokens), model(changed)

    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3:], after[:, 3:])


def test_the_token_embedding_is_the_head():
    model = GPT(SMALL)

    assert sum(parameter.shape == (11, 8) for parameter in model.parameters()) == 1


def test_an_untrained_model_guesses():
    tokens, labels = example_batch(SMALL, batch_size=8)

    assert loss(GPT(SMALL)(tokens), labels).item() == pytest.approx(math.log(11), abs=0.05)


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match="does not divide into 3 heads"):
        GPT(GPTConfig(width=8, num_heads=3))
