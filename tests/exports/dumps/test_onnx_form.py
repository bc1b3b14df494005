"""ONNX files compute what torch does; what ONNX cannot hold is refused."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from torch import nn

from porting.diagnostics import ExecutableError, PortingError
from porting.exports import capture
from porting.exports.dumps import dump_graph

has_onnx = all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript"))


@pytest.mark.skipif(has_onnx, reason="the extra is installed")
def test_onnx_without_the_extra_is_a_clear_error(linear):
    with pytest.raises(PortingError, match="X001"):
        dump_graph(linear, "onnx")


@pytest.mark.skipif(not has_onnx, reason="the extra `onnx` is not installed")
@pytest.mark.filterwarnings("ignore")
class TestOnnx:
    """ONNX files, which torch's own exporter writes."""

    def test_a_model_computes_what_torch_does(self, parts):
        import onnx
        from onnx.reference import ReferenceEvaluator

        model, loss, batch, _optimizer = parts
        step = capture(model, loss, batch, mode="inference")

        found = onnx.load_from_string(dump_graph(step, "onnx"))

        (output,) = ReferenceEvaluator(found).run(None, {found.graph.input[0].name: batch[0].numpy()})
        expected = model.eval()(batch[0]).detach()
        torch.testing.assert_close(torch.from_numpy(output), expected, rtol=1e-4, atol=1e-5)

    def test_what_training_does_otherwise_is_refused_with_its_place(self, step):
        with pytest.raises(ExecutableError, match="in training it takes the statistics of the batch"):
            dump_graph(step, "onnx")

    def test_an_operator_without_a_form_is_named(self):
        class Bessel(nn.Module):
            def forward(self, x):
                return torch.special.i0e(x)

        step = capture(Bessel(), None, torch.ones(2, 2), mode="inference")

        with pytest.raises(ExecutableError) as raised:
            dump_graph(step, "onnx")

        assert "aten.special_i0e" in raised.value.finding.message
        assert raised.value.finding.place.file == __file__
