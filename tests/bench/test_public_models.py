"""Public models are made without a download, drop nothing at random, and say which library is missing."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

from porting.bench.public_models import (
    compute_pixel_loss,
    make_language_model,
    make_speech_model,
    require_library,
    turn_dropout_off,
)
from porting.diagnostics import PortingError

TINY = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)


def test_a_missing_library_is_named_with_the_extra_that_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)

    with pytest.raises(PortingError, match="the public models of torchvision need torchvision") as caught:
        require_library("torchvision")

    assert caught.value.code == "X001"
    assert caught.value.finding.help[0] == 'pip install "ipu-porting[public]"'


def test_a_library_that_is_there_is_enough():
    require_library("torch")


def test_nothing_is_dropped():
    class DropPath(nn.Module):
        drop_prob = 0.3

    model = turn_dropout_off(nn.Sequential(nn.Dropout(0.5), DropPath()))

    assert (model[0].p, model[1].drop_prob) == (0.0, 0.0)


def test_every_pixel_counts_alike():
    outputs, labels = torch.randn(2, 3, 4, 5), torch.randint(3, (2, 4, 5))
    by_pixel = [
        nn.functional.cross_entropy(outputs[row, :, y, x], labels[row, y, x])
        for row in range(2)
        for y in range(4)
        for x in range(5)
    ]

    torch.testing.assert_close(compute_pixel_loss({"out": outputs}, labels), torch.stack(by_pixel).mean())


@pytest.mark.parametrize(
    ("name", "labels"),
    [("BertForSequenceClassification", (3,)), ("RobertaForMaskedLM", (3, 8)), ("ElectraForPreTraining", (3, 8))],
)
def test_labels_are_those_of_the_task(name, labels):
    pytest.importorskip("transformers")

    model, loss, batch = make_language_model(name, rows=3, length=8, embedding_size=16, **TINY)

    assert loss is None
    assert batch["labels"].shape == labels
    assert torch.isfinite(model(**batch).loss)


def test_sound_is_heard():
    pytest.importorskip("transformers")
    small = dict(conv_dim=(8,), conv_kernel=(10,), conv_stride=(5,), num_conv_pos_embeddings=4)
    small.update(num_conv_pos_embedding_groups=2, mask_time_prob=0.0, vocab_size=20)

    model, _loss, batch = make_speech_model("Wav2Vec2ForCTC", rows=2, shape=(400,), num_tokens=4, **small, **TINY)

    assert (batch["input_values"].shape, batch["labels"].shape) == ((2, 400), (2, 4))
    assert torch.isfinite(model(**batch).loss)


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_a_torchvision_whose_operators_are_missing_is_imported_all_the_same(tmp_path):
    """A build for GPUs beside a torch without describes operators that it could not load."""
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text("from . import first, described\n")
    (package / "first.py").write_text("")
    (package / "described.py").write_text(
        textwrap.dedent(
            """
            import torch


            @torch.library.register_fake("torchvision::nms")
            def describe(boxes, scores, threshold):
                return boxes
            """
        )
    )
    program = "from porting.bench.public_models import load_library; print(load_library('torchvision').described)"
    environment = [str(tmp_path), *filter(None, sys.path)]

    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {environment!r}; {program}"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert "torchvision.described" in done.stdout, done.stderr
