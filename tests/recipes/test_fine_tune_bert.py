"""Real classes of Hugging Face train on the device like eager, and nothing contacts the network."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

pytest.importorskip("transformers")

from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel

import porting
from porting.data.sentences import VOCABULARY, make_sentences
from porting.recipes.fine_tune_bert import workload

SIZES = {"vocab_size": len(VOCABULARY), "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}


def losses_of(make_model, batch, *, is_ported):
    torch.manual_seed(0)
    model = make_model().train()
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=0.01)
    torch.manual_seed(1)
    if is_ported:
        ported = porting.to_ipu(model, optimizer=optimizer, device="sim")
        return [ported(**batch).loss.item() for _step in range(4)]
    losses = []
    for _step in range(4):
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def assert_trains_like_eager(make_model, batch):
    plain, ported = (losses_of(make_model, batch, is_ported=is_ported) for is_ported in (False, True))

    assert ported == pytest.approx(plain, rel=1e-5)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("has_padding", [True, False])
def test_a_classifier_trains_like_eager(attention, has_padding):
    tokens, masks, labels = make_sentences(8, seed=0)
    masks = masks if has_padding else torch.ones_like(masks)
    batch = {"input_ids": tokens, "attention_mask": masks, "labels": labels}

    assert_trains_like_eager(
        lambda: BertForSequenceClassification(BertConfig(**SIZES, attn_implementation=attention)), batch
    )


def test_a_masked_language_model_trains_like_eager():
    tokens, masks, _labels = make_sentences(8, seed=0)
    batch = {"input_ids": tokens, "attention_mask": masks, "labels": tokens.masked_fill(masks == 0, -100)}

    assert_trains_like_eager(lambda: BertForMaskedLM(BertConfig(**SIZES)), batch)


def test_a_causal_language_model_trains_like_eager():
    tokens, masks, _labels = make_sentences(8, seed=0)
    batch = {"input_ids": tokens, "attention_mask": masks, "labels": tokens.masked_fill(masks == 0, -100)}
    config = GPT2Config(vocab_size=len(VOCABULARY), n_embd=16, n_layer=2, n_head=2, n_positions=32, use_cache=False)

    assert_trains_like_eager(lambda: GPT2LMHeadModel(config), batch)


@pytest.mark.parametrize("names", [("bert.embeddings",), ("bert.embeddings", "bert.encoder.layer.0")])
def test_what_is_frozen_stays_and_has_no_state(names, monkeypatch):
    monkeypatch.setattr(workload, "FROZEN", names)
    torch.manual_seed(0)
    model = workload.make_model()
    optimizer = workload.make_optimizer(model)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    data = workload.Sentences(8, seed=0)

    ported = porting.to_ipu(model, optimizer=optimizer, device="sim")
    for _step in range(2):
        ported(input_ids=data.tokens, attention_mask=data.masks, labels=data.labels)

    stayed = {name for name, weight in model.named_parameters() if torch.equal(weight, before[name])}
    assert stayed == {name for name in before if name.startswith(names)}
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(before) - len(stayed)


@pytest.mark.slow
def test_a_step_works_without_a_network():
    program = (
        "import socket\n"
        "def refuse(*args, **kwargs): raise AssertionError('the network is contacted')\n"
        "socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse\n"
        "from porting.recipes.fine_tune_bert import step_1_own_loss\n"
        "print(len(step_1_own_loss.train(2)))\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200)

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2"]
