"""Programs whose images have few channels get vectors that these fill."""

from __future__ import annotations

import pytest
import torch
from torch._inductor import config
from torch.fx.experimental.proxy_tensor import make_fx

from porting.engines.aot.inductor.optional import vector_width
from porting.engines.aot.inductor.optional.vector_width import count_loop_steps, use_better_vectors

last = torch.channels_last


@pytest.fixture
def processor(monkeypatch):
    """Give a function that sets how many bits the processor's vectors have."""

    def be_of(bits: int) -> None:
        isa = type("Isa", (), {"bit_width": staticmethod(lambda: bits)})
        monkeypatch.setattr(vector_width, "pick_vec_isa", lambda: isa)

    with config.patch({"cpp.simdlen": None}):
        yield be_of


def _trace(channels, memory_format):
    images = torch.ones(2, channels, 6, 6).contiguous(memory_format=memory_format)
    return make_fx(lambda x: (x * 2).relu(), tracing_mode="fake")(images)


@pytest.mark.parametrize(
    ("channels", "memory_format", "width"),
    [(8, last, 8), (24, last, 8), (40, last, 8), (16, last, 16), (64, last, 16), (3, last, 16)]
    + [(8, torch.contiguous_format, 16)],
)
def test_vectors_are_narrow_where_wide_ones_would_leave_single_numbers(processor, channels, memory_format, width):
    processor(512)

    assert use_better_vectors(_trace(channels, memory_format)) == width
    assert config.cpp.simdlen == (None if width == 16 else 256)


def test_a_processor_without_wide_vectors_has_no_choice(processor):
    processor(256)

    assert use_better_vectors(_trace(64, last)) == 8
    assert config.cpp.simdlen is None


def test_only_loops_over_numbers_count():
    values = [None, 3, torch.ones(5, dtype=torch.int64), torch.ones(0), torch.ones(()), torch.ones(4, 9)]

    assert [count_loop_steps(value, 16) for value in values] == [0, 0, 0, 0, 1, 2 + 4]
