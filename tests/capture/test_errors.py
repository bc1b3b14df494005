"""What a refusal says: the user's line, the part of the model, where it is inside torch, and what to do."""

from __future__ import annotations

import linecache

import pytest
import torch
from torch import nn

from porting.capture import capture_step
from porting.capture.errors import data_dependent_error, value_dependent_error
from porting.diagnostics import CaptureError


class Reading(nn.Module):
    def forward(self, x):
        return x * x.sum().item()


class Deep(nn.Module):
    """The fault is two modules down."""

    def __init__(self, faulty):
        super().__init__()
        self.encoder = nn.Sequential(nn.Identity(), faulty)

    def forward(self, x):
        return self.encoder(x)


def finding_of(model, *example):
    with pytest.raises(CaptureError) as caught:
        capture_step(model, example, mode="inference")
    return caught.value.finding


def line_of(finding):
    return linecache.getline(finding.place.file, finding.place.line).strip()


def test_a_refusal_names_the_module_it_arose_in():
    finding = finding_of(Deep(Reading()), torch.ones(3))

    assert line_of(finding) == "return x * x.sum().item()"
    assert "the module is `encoder.1` (Reading)" in finding.notes


def test_the_model_itself_needs_no_name():
    finding = finding_of(Reading(), torch.ones(3))

    assert not any("module" in note for note in finding.notes)


def test_a_fault_inside_torch_is_placed_at_the_users_line_and_names_torchs():
    # a moving average without momentum divides by the number of batches, on the host
    finding = finding_of(Deep(nn.BatchNorm1d(3, momentum=None)), torch.ones(4, 3))

    assert finding.code == "C001"
    assert line_of(finding) == "return self.encoder(x)"
    assert any(note.startswith("it happens inside torch, at torch/nn/modules/batchnorm.py:") for note in finding.notes)
    assert "the module is `encoder.1` (BatchNorm1d)" in finding.notes


def test_a_module_that_was_left_by_an_error_is_not_blamed():
    class Forgiving(nn.Module):
        def __init__(self):
            super().__init__()
            self.strict, self.other = nn.Linear(7, 7), Reading()

        def forward(self, x):
            try:
                self.strict(x)
            except RuntimeError:
                pass
            return self.other(x)

    finding = finding_of(Forgiving(), torch.ones(3))

    assert "the module is `other` (Reading)" in finding.notes


def test_the_text_shows_line_notes_and_remedy():
    with pytest.raises(CaptureError) as caught:
        capture_step(Deep(Reading()), [torch.ones(3)], mode="inference")

    text = str(caught.value)
    assert text.startswith("error[C001]: `.item()` reads a tensor's value on the host")
    assert "return x * x.sum().item()" in text
    assert "= note: the module is `encoder.1` (Reading)" in text
    assert "= help: keep the value on the device" in text


@pytest.mark.parametrize(
    ("operator", "remedy"),
    [
        ("index", "torch.where(mask, x, 0)"),
        ("one_hot", "one_hot(x, num_classes)"),
        ("repeat_interleave", "output_size=n"),
        ("bincount", "one_hot(x, num_classes).sum(0)"),
        ("nonzero", "topk"),
    ],
)
def test_a_shape_that_depends_on_values_has_a_remedy_of_its_own(operator, remedy):
    assert remedy in data_dependent_error(operator).finding.help[0]


@pytest.mark.parametrize(("operator", "code"), [("one_hot", "C002"), ("narrow", "C001")])
def test_reading_a_value_is_told_apart_from_a_shape_that_depends_on_it(operator, code):
    assert value_dependent_error(operator).code == code


def test_a_host_tensor_can_be_made_on_the_device_or_registered(refusal):
    host = torch.ones(4)

    finding = refusal(lambda weight: weight + host)

    assert "device=x.device" in finding.help[0]
    assert "register_buffer" in finding.help[1]


def test_an_operator_without_a_rule_for_shapes_is_named(refusal):
    library = torch.library.Library("porting_capture_test", "FRAGMENT")
    library.define("opaque(Tensor x) -> Tensor")
    library.impl("opaque", lambda x: x.clone(), "CPU")

    finding = refusal(torch.ops.porting_capture_test.opaque.default)

    assert finding.code == "C013"
    assert "porting_capture_test.opaque" in finding.message
