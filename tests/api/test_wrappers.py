"""torch's wrappers for modules are refused around a ported model, with advice."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as distributed
from torch import nn

from porting import to_ipu
from porting.diagnostics import DeviceError

BATCH = torch.rand(6, 4), torch.randint(3, (6,))


def make_port():
    return to_ipu(nn.Linear(4, 3), nn.CrossEntropyLoss(), device="sim")


def refusal_of(wrap):
    with pytest.raises(DeviceError) as caught:
        wrap()
    assert caught.value.code == "D003"
    return str(caught.value)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_data_parallel_is_refused_at_its_call(is_compiled):
    ported = make_port()
    if is_compiled:
        ported(*BATCH)

    text = refusal_of(lambda: nn.DataParallel(ported)(*BATCH))

    assert "wrapped in `DataParallel`" in text
    assert "PortOptions(replicas=N)" in text


def test_data_parallel_around_the_model_that_inference_runs_is_refused():
    refusal_of(lambda: nn.DataParallel(make_port().inference())(BATCH[0]))


def test_distributed_data_parallel_is_refused(tmp_path):
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        text = refusal_of(lambda: nn.parallel.DistributedDataParallel(make_port()))
    finally:
        distributed.destroy_process_group()

    assert "wrapped in `DistributedDataParallel`" in text
    assert "torchrun" in text


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torch_compile_is_refused():
    text = refusal_of(lambda: torch.compile(make_port()))

    assert "wrapped in `torch.compile`" in text
    assert "PortOptions(engine=...)" in text


@pytest.mark.parametrize("wrap", [nn.Sequential, lambda ported: nn.ModuleList([ported])])
def test_a_port_inside_a_module_is_refused_by_torch_with_its_class(wrap):
    with pytest.raises(TypeError, match=r"PortedModel is not a Module subclass"):
        wrap(make_port())


def test_attributes_that_no_wrapper_asks_for_are_missing_as_ever():
    assert not hasattr(make_port(), "_no_such_attribute")
