"""Remedies help in the order they are named, and bring what they promise."""

from __future__ import annotations

import ast
import re

import pytest
import torch
from torch import nn

from porting import PortOptions, memory_report, plan
from tests.planning.gpt_ports import TiedHead, ported_gpt, total


def test_what_does_not_fit_says_so_and_what_helps_in_order():
    report = total(ported_gpt(batch=64, layers=8, width=512, length=256))

    assert (report.verdict, report.fits) == ("does not fit", False)
    assert [remedy.name for remedy in report.remedies][:3] == ["float16", "micro-batch 1", "recomputation"]
    assert [remedy.name for remedy in report.remedies][3] == "state off chip"
    assert report.finding.code == "M001"
    together = [remedy.together_bytes for remedy in report.remedies]
    assert together == sorted(together, reverse=True)


def test_a_remedy_brings_what_it_promises():
    wanted = {"batch": 32, "layers": 6, "width": 128, "length": 64}
    remedies = {remedy.name.split()[0]: remedy for remedy in total(ported_gpt(**wanted)).remedies}

    recomputed = total(ported_gpt(**wanted, recompute=remedies["recomputation"].options["recompute"])).bytes_per_ipu
    in_one = total(ported_gpt(**dict(wanted, batch=1), accumulation=32)).bytes_per_ipu

    assert recomputed == pytest.approx(remedies["recomputation"].alone_bytes, rel=0.01)
    assert in_one == pytest.approx(remedies["micro-batch"].alone_bytes, rel=0.01)


@pytest.mark.slow
def test_the_proposed_pipeline_can_be_ported_and_needs_what_was_said():
    wanted = {"batch": 16, "layers": 6, "width": 128, "length": 64}
    (pipeline,) = (r for r in total(ported_gpt(**wanted), target="gc2").remedies if r.name.startswith("pipeline"))
    ported, batch = ported_gpt(**wanted, accumulation=9, stages=pipeline.options["stages"])

    ported(*batch)

    assert memory_report(ported, batch, target="gc2").bytes_per_ipu == pytest.approx(pipeline.alone_bytes, rel=0.01)


def test_a_pipeline_of_inference_can_be_ported_and_needs_what_was_said():
    wanted = {"batch": 16, "layers": 6, "width": 128, "length": 64}
    ported, (tokens, _labels) = ported_gpt(**wanted)
    remedies = memory_report(ported, (tokens,), mode="inference", target="gc2").remedies
    (pipeline,) = (remedy for remedy in remedies if remedy.name.startswith("pipeline"))
    cut, _batch = ported_gpt(**wanted, accumulation=9, stages=pipeline.options["stages"])

    report = memory_report(cut, (tokens,), mode="inference", target="gc2")

    assert "accumulation" not in pipeline.change
    assert len(report.ipus) == pipeline.num_ipus
    assert report.bytes_per_ipu == pytest.approx(pipeline.alone_bytes, rel=0.01)


def test_what_helps_can_be_pasted():
    report = total(ported_gpt(batch=64, layers=8, width=512, length=256))
    (remedy,) = (remedy for remedy in report.remedies if remedy.name == "recomputation")
    text = " ".join(str(report).split())

    assert ast.literal_eval(re.search(r"`recompute=(\[.*?\])`", text)[1]) == remedy.options["recompute"]
    (pipeline,) = (remedy for remedy in report.remedies if remedy.name.startswith("pipeline"))
    assert ast.literal_eval(re.search(r"`stages=(\{.*?\})`", text)[1]) == pipeline.options["stages"]


def test_the_suggested_options_are_enough():
    batch = torch.zeros(64, dtype=torch.int64), torch.zeros(64, dtype=torch.int64)
    whole = plan(TiedHead(), None, batch, machine="gc2", ipus=1)

    suggested = plan(TiedHead(), None, batch, None, whole.suggested, "gc2")

    assert suggested.bytes_per_ipu <= whole.bytes_per_ipu
    assert suggested.fits


def test_each_remedy_says_what_it_does_to_the_speed_and_how_sure_that_is():
    report = total(ported_gpt(batch=64, layers=8, width=512, length=256))
    speeds = {remedy.name: remedy.speed for remedy in report.remedies}

    assert all(remedy.speed_error >= 0 for remedy in report.remedies)
    assert speeds["float16"] > 0.5
    assert -0.3 < speeds["recomputation"] < -0.15
    assert re.search(r"recomputation .* -\d\d% \+-\d", str(report))


def test_what_is_suggested_is_told_by_the_same_climb(monkeypatch):
    report = total(ported_gpt(batch=64, layers=8, width=512, length=256))
    monkeypatch.setattr("porting.planning.remedies.LADDER", None)

    assert report.suggested != report.options


def test_spare_memory_is_spent_back_on_a_larger_micro_batch():
    report = total(ported_gpt(batch=64, layers=8, width=512, length=256))
    suggested = report.suggested

    assert suggested.micro_batch > 1
    assert suggested.micro_batch * suggested.accumulation == 64


def test_spare_memory_is_spent_back_on_outputs_that_need_no_second_computation():
    class Tower(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Sequential(nn.Linear(512, 512), nn.Tanh()) for _ in range(40))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    # one row, so that nothing but recomputation helps
    batch = torch.zeros(1, 20_000, 512), torch.zeros(1, 20_000, 512)
    with torch.device("meta"):
        model = Tower()
    whole = plan(model, nn.MSELoss(), batch, None, PortOptions(precision="float16"), ipus=1)
    names = next(remedy.options["recompute"] for remedy in whole.remedies if remedy.name == "recomputation")

    suggested = plan(model, nn.MSELoss(), batch, None, whole.suggested, ipus=1)

    assert whole.suggested.recompute.endswith(" MB")
    assert len(suggested.options.recompute) > len(names)
    assert suggested.fits


def test_a_remedy_that_contradicts_an_option_of_the_users_is_none():
    ported, batch = ported_gpt(batch=32)
    kept, _batch = ported_gpt(batch=32, keep_gradients=True)

    helps, still_helps = ([remedy.options for remedy in memory_report(one, batch).remedies] for one in (ported, kept))

    # an accumulation wants an output mode that returns every gradient
    assert any("micro_batch" in options for options in helps)
    assert still_helps
    assert not any("micro_batch" in options for options in still_helps)
