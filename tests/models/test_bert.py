"""BERT is what Hugging Face's is with the same weights, layer by layer, and has its number of parameters."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import nn

from porting.models.bert import VARIANTS, Bert, BertClassifier, BertMaskedLM, build, example_batch, loss


@pytest.fixture
def transformers(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("transformers")


def their_config(transformers, config, **changes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transformers.BertConfig(
            vocab_size=config.vocabulary,
            hidden_size=config.width,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            intermediate_size=config.inner_width,
            max_position_embeddings=config.length,
            type_vocab_size=config.num_types,
            num_labels=config.num_classes,
            **changes,
        )


# ours: theirs, within a block
BLOCK = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "project": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "grow": "intermediate.dense",
    "shrink": "output.dense",
    "perceptron_norm": "output.LayerNorm",
}


def copy_layer(ours: nn.Module, theirs: nn.Module) -> None:
    """Copy what two layers of the same kind hold, with random numbers in the place of initial zeros and ones."""
    for name, parameter in ours.named_parameters():
        other = theirs.get_parameter(name)
        assert other.shape == parameter.shape
        nn.init.normal_(other, mean=1.0 if other.min() == other.max() == 1 else 0.0, std=0.1)
        parameter.data.copy_(other.data)


def copy_bert(ours: Bert, theirs: nn.Module) -> None:
    embeddings = {"words": "word_embeddings", "positions": "position_embeddings", "types": "token_type_embeddings"}
    for name, other in {**embeddings, "norm": "LayerNorm"}.items():
        copy_layer(getattr(ours.embeddings, name), getattr(theirs.embeddings, other))
    for block, layer in zip(ours.blocks, theirs.encoder.layer):
        for name, other in BLOCK.items():
            copy_layer(getattr(block, name), layer.get_submodule(other))


@pytest.fixture
def config():
    return VARIANTS["toy"]


@pytest.fixture
def batch(config):
    return example_batch(config, batch_size=3, seed=1)


def test_every_layer_is_that_of_hugging_face(transformers, config, batch):
    tokens, types, mask, _labels = batch
    ours, theirs = Bert(config).eval(), transformers.BertModel(their_config(transformers, config)).eval()
    copy_bert(ours, theirs)
    seen = []
    for block in [ours.embeddings, *ours.blocks]:
        block.register_forward_hook(lambda _module, _inputs, output: seen.append(output))

    ours(tokens, types, mask)
    result = theirs(tokens, attention_mask=mask, token_type_ids=types, output_hidden_states=True)

    assert len(seen) == len(result.hidden_states) == config.num_layers + 1
    for one, another in zip(seen, result.hidden_states):
        torch.testing.assert_close(one, another, rtol=1e-4, atol=1e-5)


def test_the_words_are_scored_as_by_hugging_face(transformers, config, batch):
    tokens, types, mask, labels = batch
    ours = build("toy").eval()
    theirs = transformers.BertForMaskedLM(their_config(transformers, config)).eval()
    copy_bert(ours.bert, theirs.bert)
    head = theirs.cls.predictions
    copy_layer(ours.transform, head.transform.dense)
    copy_layer(ours.norm, head.transform.LayerNorm)
    nn.init.normal_(head.bias)
    ours.bias.data.copy_(head.bias.data)

    logits = ours(tokens, types, mask)
    result = theirs(tokens, attention_mask=mask, token_type_ids=types, labels=labels)

    torch.testing.assert_close(logits, result.logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(loss(logits, labels), result.loss, rtol=1e-5, atol=1e-6)


def test_the_classes_are_scored_as_by_hugging_face(transformers, config, batch):
    tokens, types, mask, _labels = batch
    ours = build("toy", head="classification").eval()
    theirs = transformers.BertForSequenceClassification(their_config(transformers, config)).eval()
    copy_bert(ours.bert, theirs.bert)
    copy_layer(ours.pooler, theirs.bert.pooler.dense)
    copy_layer(ours.classifier, theirs.classifier)

    logits = ours(tokens, types, mask)

    result = theirs(tokens, attention_mask=mask, token_type_ids=types)
    torch.testing.assert_close(logits, result.logits, rtol=1e-4, atol=1e-5)


def test_attention_is_its_formula():
    config = VARIANTS["toy"]
    block = Bert(config).eval().blocks[0]
    x, is_seen = torch.randn(2, 5, config.width), torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]).bool()

    attended = block._compute_attention(x, is_seen[:, None, None, :])

    size = config.width // config.num_heads
    for head in range(config.num_heads):
        columns = slice(head * size, (head + 1) * size)
        query, key, value = (part(x)[..., columns] for part in (block.query, block.key, block.value))
        scores = query @ key.transpose(1, 2) / math.sqrt(size)
        weights = scores.masked_fill(~is_seen[:, None, :], -math.inf).softmax(dim=-1)
        torch.testing.assert_close(attended[..., columns], weights @ value, rtol=1e-4, atol=1e-5)


def test_base_has_as_many_parameters_as_berts_base():
    with torch.device("meta"):
        model = BertClassifier(VARIANTS["base"])

    pooled = [*model.bert.parameters(), *model.pooler.parameters()]
    assert sum(parameter.numel() for parameter in pooled) == 109_482_240


@pytest.mark.parametrize(("variant", "expected"), [("tiny", 4_385_920), ("mini", 11_170_560)])
def test_the_small_ones_have_as_many_parameters_as_the_published_ones(variant, expected):
    with torch.device("meta"):
        model = build(variant, head="classification")

    pooled = [*model.bert.parameters(), *model.pooler.parameters()]
    assert sum(parameter.numel() for parameter in pooled) == expected


def test_what_is_masked_is_not_seen(config, batch):
    tokens, types, mask, _labels = batch
    model = Bert(config).eval()
    other = tokens.where(mask == 1, (tokens + 1) % config.vocabulary)

    seen = model(tokens, types, mask)

    is_word = mask == 1
    torch.testing.assert_close(model(other, types, mask)[is_word], seen[is_word])


def test_without_types_and_mask_all_tokens_are_of_the_first_type_and_count(config, batch):
    tokens = batch[0]
    model = BertMaskedLM(config).eval()

    torch.testing.assert_close(
        model(tokens), model(tokens, torch.zeros_like(tokens), torch.ones_like(tokens)), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(("changes", "message"), [({"width": 33}, "does not divide"), ({"head": "x"}, "no head 'x'")])
def test_a_configuration_that_makes_no_model_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        build("toy", **changes)
