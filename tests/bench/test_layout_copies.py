from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.bench.children import measure_layout_copies
from porting.bench.choices import BenchSettings
from porting.bench.layout_copies import count_layout_copies, read_reorders
from porting.bench.workloads import Source

LINE = "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:blk,undef,src:{} dst:{},attr-scratchpad:user,,4x64x32x32,0.5"


def test_an_operator_that_only_transposes_counts():
    wide = torch.ones(8, 16)

    copies = count_layout_copies(lambda: wide.t().contiguous())

    assert copies.operators.number == 1
    assert copies.operators.bytes == 2 * 8 * 16 * 4
    assert 0 < copies.operators.seconds


def test_what_copies_parts_types_or_repeated_values_does_not_count():
    wide = torch.ones(8, 16)

    copies = count_layout_copies(
        lambda: (wide[:, :4].contiguous(), wide.double(), wide.clone(), torch.ones(8, 1).expand(8, 16).contiguous())
    )

    assert copies.number == 0


def test_copies_are_those_of_one_step():
    wide = torch.ones(8, 16)

    copies = count_layout_copies(lambda: [wide.t().contiguous() for _step in range(4)], steps=4)

    assert copies.operators.number == 1


def test_a_reorder_between_types_or_of_the_same_layout_does_not_count():
    lines = [
        LINE.format("f32::blocked:abcd::f0", "f32::blocked:aBcd16b::f0"),
        LINE.format("f32::blocked:abcd::f0", "bf16::blocked:aBcd16b::f0"),
        LINE.format("f32::blocked:abcd::f0", "f32::blocked:abcd::f0"),
        "onednn_verbose,v1,primitive,exec,cpu,convolution,jit:avx512_core,forward_training,src:f32:a:blocked:abcd::f0",
        "a line of the program's own",
    ]

    ((shape, copies),) = read_reorders(lines)

    assert shape == (4, 64, 32, 32)
    assert copies.seconds == 0.0005


def test_reorders_of_oednn_count_where_it_runs_convolutions(capfd):
    torch.manual_seed(0)
    model, images = nn.Conv2d(32, 64, 3), torch.randn(4, 32, 16, 16)

    copies = count_layout_copies(lambda: model(images), weight_shapes={tuple(model.weight.shape)})

    if torch.backends.mkldnn.is_available():
        assert copies.weights.number + copies.others.number > 0
    assert "onednn" not in capfd.readouterr().out


@pytest.mark.usefixtures("programs_have_compiler")
@pytest.mark.slow
def test_both_sides_are_counted_in_processes_of_their_own():
    source = Source("porting.bench.suite:load", {"name": "mushrooms", "choices": {"engine": "replay"}})

    copies = measure_layout_copies(source, BenchSettings(threads=1, device="sim"))

    assert copies.reason == ""
    assert copies.eager.number == copies.ported.number == 0


@pytest.mark.slow
@pytest.mark.usefixtures("programs_have_compiler")
def test_the_reason_is_kept_where_a_process_fails():
    source = Source("porting.bench.suite:load", {"name": "there is none", "choices": {}})

    assert "KeyError" in measure_layout_copies(source, BenchSettings()).reason
