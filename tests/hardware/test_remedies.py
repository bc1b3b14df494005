"""Models of transformers that read values in `forward` train on the hardware path, by remedies, like plain PyTorch."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers")

from tests.hardware.side_by_side import equal, port
from tests.remedies.detectors import make_detector, make_images
from tests.remedies.detectors import train_plainly as train_detector_plainly
from tests.remedies.model_zoo import Entry, make_batch, make_model, train_plainly

REMEDIED = {
    "activation-range": Entry("IBertForSequenceClassification"),
    "fourier-mixing": Entry("FNetForMaskedLM"),
    "global-attention": Entry("LongformerForSequenceClassification", {"attention_window": [8, 8]}),
    "last-token": Entry("BartForSequenceClassification", ends=True),
    "layer-drop": Entry("BartForConditionalGeneration"),
    "padding-mask": Entry(
        "FSMTForConditionalGeneration", {"langs": ["en", "de"], "src_vocab_size": 99, "tgt_vocab_size": 99}
    ),
    "reversible-layers": Entry(
        "ReformerForSequenceClassification",
        {"attn_layers": ["local", "local"], "local_attn_chunk_length": 8, "axial_pos_embds": False},
    ),
    "sequence-lengths": Entry("XLMForSequenceClassification"),
}


@pytest.mark.parametrize("remedy", REMEDIED)
def test_a_remedy_takes_part_and_the_losses_are_those_of_plain_pytorch(remedy):
    entry = REMEDIED[remedy]
    model = make_model(entry)
    batch = make_batch(entry, model)
    plain = train_plainly(model, batch)

    model = make_model(entry)
    ported = port(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.01))
    losses = [float(ported(**batch).loss) for _step in range(3)]

    assert losses == equal(plain)
    assert f"`{remedy}`" in str(ported.report())


def test_a_detector_trains_like_plain():
    batch = make_images()
    plain = train_detector_plainly(make_detector("Detr", ["stage4"]), batch)

    model = make_detector("Detr", ["stage4"])
    ported = port(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.01))
    losses = [float(ported(**batch)) for _step in range(3)]

    assert losses == equal(plain)
    assert "`finite-activations`" in str(ported.report())
