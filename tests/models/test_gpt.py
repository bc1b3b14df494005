"""The transformer only looks back."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import pytest
import torch

from porting.models.gpt import GPT, GPTConfig, build, example_batch, loss

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
        GPTConfig(width=8, num_heads=3)


def test_dropout_reaches_the_probabilities_of_attention_in_training_only(monkeypatch):
    attend, shares = torch.nn.functional.scaled_dot_product_attention, []

    def watched(*args, dropout_p, **kwargs):
        shares.append(dropout_p)
        return attend(*args, dropout_p=dropout_p, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    model = GPT(replace(SMALL, num_layers=1, dropout=0.25))
    tokens, _labels = example_batch(SMALL, batch_size=2)

    model(tokens)
    model.eval()(tokens)

    assert shares == [0.25, 0.0]


def test_the_smallest_gpt2_has_as_many_parameters_as_the_published_one():
    with torch.device("meta"):
        model = build("gpt2_small")

    assert sum(parameter.numel() for parameter in model.parameters()) == 124_439_808


def test_every_layer_is_that_of_hugging_face(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = pytest.importorskip("transformers")
        theirs = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(vocab_size=11, n_positions=6, n_embd=8, n_layer=2, n_head=2)
        ).eval()
    ours = GPT(SMALL).eval()
    pairs = {"attention_norm": "ln_1", "query_key_value": "attn.c_attn", "project": "attn.c_proj"}
    pairs.update(perceptron_norm="ln_2", grow="mlp.c_fc", shrink="mlp.c_proj")
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    ours.token_embedding.weight.data.copy_(theirs.transformer.wte.weight.data)
    ours.position_embedding.data.copy_(theirs.transformer.wpe.weight.data)
    for block, layer in zip([*ours.blocks, ours], [*theirs.transformer.h, theirs.transformer]):
        for name, other in pairs.items() if block is not ours else [("norm", "ln_f")]:
            mine, their = getattr(block, name), layer.get_submodule(other)
            # their linear layers keep the weight the other way round
            is_turned = isinstance(mine, torch.nn.Linear)
            mine.weight.data.copy_(their.weight.data.T if is_turned else their.weight.data)
            mine.bias.data.copy_(their.bias.data)
    seen = []
    for module in (*ours.blocks, ours.norm):
        module.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    tokens, labels = example_batch(SMALL, batch_size=3)

    logits = ours(tokens)
    result = theirs(tokens, output_hidden_states=True)

    # theirs are what each block gets, and the last one normalised
    torch.testing.assert_close(seen[0], result.hidden_states[1], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(seen[2], result.hidden_states[2], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(logits, result.logits, rtol=1e-4, atol=1e-5)
