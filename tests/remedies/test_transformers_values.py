"""Models of transformers that read values in `forward` train like plain PyTorch, by remedies."""

from __future__ import annotations

import os

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")

import porting  # noqa: E402 - nothing may contact the network before
from tests.remedies.model_zoo import Entry, make_batch, make_model, train_plainly  # noqa: E402

REMEDIED = {
    "activation-range": Entry("IBertForSequenceClassification"),
    "attention-span": Entry(
        "DebertaForMaskedLM",
        {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False},
    ),
    "fourier-mixing": Entry("FNetForMaskedLM"),
    "global-attention": Entry("LongformerForSequenceClassification", {"attention_window": [8, 8]}),
    "labelled-samples": Entry("DebertaV2ForSequenceClassification"),
    "language-adapters": Entry("XmodForMaskedLM", {"languages": ["en_XX", "de_DE"], "default_language": "de_DE"}),
    "last-token": Entry("BartForSequenceClassification", ends=True),
    "padding-mask": Entry(
        "FSMTForConditionalGeneration", {"langs": ["en", "de"], "src_vocab_size": 99, "tgt_vocab_size": 99}
    ),
    "reversible-layers": Entry(
        "ReformerForSequenceClassification",
        {"attn_layers": ["local", "local"], "local_attn_chunk_length": 8, "axial_pos_embds": False},
    ),
    "speech-labels": Entry("HubertForCTC", {"apply_spec_augment": False}),
    "sequence-lengths": Entry("XLMForSequenceClassification"),
    "static-experts": Entry("MixtralForCausalLM"),
    "whole-rotation": Entry("Phi3ForCausalLM"),
}
SPARSE = {"num_sparse_encoder_layers": 2, "num_sparse_decoder_layers": 2}
ALSO_REMEDIED = [
    Entry("JetMoeForCausalLM", {"kv_channels": 8}),
    Entry("SEWForCTC", {"apply_spec_augment": False, "squeeze_factor": 1}),
    Entry("FlaubertForTokenClassification"),
    Entry("LEDForConditionalGeneration", {"attention_window": [8, 8], "max_encoder_position_embeddings": 64}),
    Entry("LongformerForMaskedLM", {"attention_window": [8, 8]}),
    Entry("LongformerForQuestionAnswering", {"attention_window": [8, 8], "sep_token_id": 2}, separators=(3, 6, 9)),
    Entry("MBartForSequenceClassification", ends=True),
    Entry("MT5ForSequenceClassification", ends=True),
    Entry("SwitchTransformersForConditionalGeneration", {"num_experts": 2, "decoder_start_token_id": 0, **SPARSE}),
]
WITHOUT_REMEDY = [
    Entry("AlbertForMaskedLM", {"embedding_size": 16}),
    Entry("BertForQuestionAnswering"),
    Entry("CanineForTokenClassification", {"num_hash_buckets": 64, "num_hash_functions": 4, "downsampling_rate": 4}),
    Entry("DistilBertForMultipleChoice"),
    Entry("ElectraForPreTraining"),
    Entry("GPT2LMHeadModel"),
    Entry("GPTJForCausalLM"),
    Entry("LlamaForCausalLM"),
    Entry("OPTForCausalLM"),
    Entry("RobertaForTokenClassification"),
    Entry("T5ForConditionalGeneration", {"decoder_start_token_id": 0}),
    Entry("ViTForImageClassification"),
    Entry("Wav2Vec2ForSequenceClassification", {"apply_spec_augment": False}),
]


def assert_trains_like_plain(entry):
    model = make_model(entry)
    batch = make_batch(entry, model)
    plain = train_plainly(model, batch)

    model = make_model(entry)
    ported = porting.to_ipu(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.01), device="sim")
    losses = [ported(**batch).loss.item() for _step in range(3)]

    assert losses == pytest.approx(plain, rel=1e-6)
    return {finding.message.split("`")[1] for finding in ported.report().findings if finding.code == "C022"}


@pytest.mark.slow
@pytest.mark.parametrize("remedy", REMEDIED)
def test_a_remedy_takes_part_and_the_losses_are_those_of_plain_pytorch(remedy):
    assert remedy in assert_trains_like_plain(REMEDIED[remedy])


@pytest.mark.slow
@pytest.mark.parametrize("entry", ALSO_REMEDIED, ids=str)
def test_a_remedy_serves_other_models_too(entry):
    assert assert_trains_like_plain(entry)


@pytest.mark.slow
@pytest.mark.parametrize("entry", WITHOUT_REMEDY, ids=str)
def test_most_models_train_without_a_remedy(entry):
    assert not assert_trains_like_plain(entry)


def test_without_its_remedy_a_model_is_refused():
    entry = REMEDIED["sequence-lengths"]
    model = make_model(entry)
    options = porting.PortOptions(without_remedies=["sequence-lengths"])
    ported = porting.to_ipu(model, options=options, device="sim")

    with pytest.raises(porting.PortingError, match="C001"):
        ported(**make_batch(entry, model))


def test_the_library_is_as_before_afterwards():
    entry = REMEDIED["sequence-lengths"]
    model = make_model(entry)
    before = type(model.transformer).forward

    porting.to_ipu(model, device="sim")(**make_batch(entry, model))

    assert type(model.transformer).forward is before
