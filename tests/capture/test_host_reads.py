"""Every way of reading a tensor's value in `forward` is refused at the user's line, with a remedy."""

from __future__ import annotations

import copy
import io
import math
import operator
import pickle
import sys

import numpy as np
import pytest
import torch

from porting.capture import capture_step
from porting.diagnostics import CaptureError, render


def choose(weight):
    if weight.sum() > 0:
        return weight
    return -weight


def check(weight):
    assert (weight > 0).all()
    return weight


READS = {
    "item": lambda weight: weight.sum().item(),
    "int": lambda weight: int(weight.sum()),
    "float": lambda weight: float(weight.sum()),
    "complex": lambda weight: complex(weight.sum()),
    "bool": lambda weight: bool(weight.sum()),
    "conditional expression": lambda weight: 1 if weight.sum() > 0 else 2,
    "and": lambda weight: weight.sum() and 1,
    "not": lambda weight: not weight.sum(),
    "list index": lambda weight: [1, 2, 3][weight.sum().int()],
    "range": lambda weight: list(range(weight.sum().int())),
    "operator.index": lambda weight: operator.index(weight.sum().int()),
    "numpy": lambda weight: weight.detach().numpy(),
    "np.array": lambda weight: np.array(weight.detach()),
    "np.asarray": lambda weight: np.asarray(weight),
    "tolist": lambda weight: weight.tolist(),
    "in": lambda weight: 1.0 in weight,
    "max": lambda weight: max(weight.sum(), weight.mean()),
    "sorted": lambda weight: sorted(weight[0]),
    "math.exp": lambda weight: math.exp(weight.sum()),
    "torch.equal": lambda weight: torch.equal(weight, weight),
    "torch.allclose": lambda weight: torch.allclose(weight, weight),
    "is_nonzero": lambda weight: torch.is_nonzero(weight.sum()),
    "data_ptr": lambda weight: weight.data_ptr(),
    "storage": lambda weight: weight.storage(),
    "untyped_storage": lambda weight: weight.untyped_storage(),
    "pickle": lambda weight: pickle.dumps(weight),
    "torch.save": lambda weight: torch.save(weight, io.BytesIO()),
    "tensor of tensors": lambda weight: torch.tensor([weight.sum(), weight.mean()]),
}

PRINTS = {
    "print": lambda weight: sys.stdout.write(str(weight)),
    "repr": lambda weight: repr(weight),
    "repr of a list": lambda weight: repr([weight]),
    "f-string": lambda weight: f"{weight}",
    "percent": lambda weight: "%s" % weight,  # noqa: UP031 - the old way is what is tested
    "format": lambda weight: format(weight.sum(), ".3f"),
}


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # numpy's, about torch
@pytest.mark.parametrize("function", READS.values(), ids=READS.keys())
def test_a_host_read_is_refused_at_the_line_that_reads(refusal, function):
    finding = refusal(function)

    assert finding.code == "C001"
    assert (finding.place.file, finding.place.line) == (__file__, function.__code__.co_firstlineno)
    assert finding.help


@pytest.mark.parametrize("function", PRINTS.values(), ids=PRINTS.keys())
def test_a_print_is_refused_at_the_line_that_prints(refusal, function):
    finding = refusal(function)

    assert finding.code == "C010"
    assert (finding.place.file, finding.place.line) == (__file__, function.__code__.co_firstlineno)
    assert finding.help


@pytest.mark.parametrize("function", [choose, check])
def test_a_statement_that_asks_for_a_truth_value_is_refused_at_its_line(refusal, function):
    finding = refusal(function)

    assert finding.code == "C001"
    assert finding.place.line == function.__code__.co_firstlineno + 1


def test_the_message_names_what_reads(refusal):
    finding = refusal(READS["item"])

    assert finding.message.startswith("`.item()` reads a tensor's value on the host")


def test_the_rendered_error_shows_the_line_of_source(refusal):
    text = render(refusal(READS["tolist"]))

    assert '"tolist": lambda weight: weight.tolist()' in text


def test_a_tensor_made_of_tensors_is_told_to_stack_them(refusal):
    finding = refusal(READS["tensor of tensors"])

    assert "torch.stack" in finding.help[0]


def test_the_error_says_in_which_part_of_the_model_it_arose(body):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), body(lambda _weight, x: x.sum().item()))

    with pytest.raises(CaptureError) as caught:
        capture_step(model, [torch.ones(2, 4)], mode="inference")

    assert caught.value.finding.notes == ("the module is `1` (Body)",)


def test_where_prints_are_let_through_they_leave_a_finding(trace):
    graph = trace(PRINTS["f-string"], prints="unavailable")

    assert [finding.code for finding in graph.findings] == ["C010"]


def test_formatting_as_a_number_is_refused_even_where_prints_are_let_through(refusal):
    finding = refusal(PRINTS["format"], prints="unavailable")

    assert finding.code == "C001"


def test_a_printed_tensor_says_that_it_has_no_value(trace):
    seen = []

    trace(lambda weight: seen.append(str(weight)), prints="unavailable")

    assert seen == ["tensor(<unavailable>, device='ipu:0', size=(5, 4), dtype=torch.float32)"]


def test_shape_questions_are_no_reads(trace):
    graph = trace(lambda weight: weight * (len(weight) + weight.dim() + weight.numel() + weight.shape[1]))

    assert [op.operator for op in graph.operators] == ["aten.mul.Tensor"]


def test_iterating_over_rows_is_no_read(trace):
    graph = trace(lambda weight: [row * 2 for row in weight])

    assert len(graph.outputs) == 5


def test_a_deep_copy_is_no_read(trace):
    graph = trace(lambda weight: copy.deepcopy(weight) * 1)

    assert len(graph.outputs) == 1
