"""A ported model is not moved, cast or wrapped."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as distributed
from torch import nn

from porting import PortOptions, to_ipu
from porting.diagnostics import DeviceError

HARMLESS = {
    "to('cpu')": lambda ported: ported.to("cpu"),
    "to('ipu')": lambda ported: ported.to("ipu"),
    "to('ipu:0')": lambda ported: ported.to("ipu:0"),
    "to(device)": lambda ported: ported.to(torch.device("cpu")),
    "to(device=, non_blocking=)": lambda ported: ported.to(device="cpu", non_blocking=True),
    "to(dtype)": lambda ported: ported.to(torch.float32),
    "to(device, dtype)": lambda ported: ported.to("cpu", torch.float32),
    "to(tensor)": lambda ported: ported.to(torch.ones(1)),
    "cpu": lambda ported: ported.cpu(),
    "float": lambda ported: ported.float(),
    "type": lambda ported: ported.type(torch.float32),
    "type by name": lambda ported: ported.type("torch.FloatTensor"),
    "train": lambda ported: ported.train(),
    "eval": lambda ported: ported.eval(),
    "apply": lambda ported: ported.apply(lambda module: None),
    "requires_grad_": lambda ported: ported.requires_grad_(True),
    "load_state_dict": lambda ported: ported.load_state_dict(ported.state_dict()) and ported,
    "detach": lambda ported: ported.detach(),
}
REFUSED = {
    "to('cuda')": lambda ported: ported.to("cuda"),
    "to('cuda:1')": lambda ported: ported.to(torch.device("cuda:1")),
    "to(0)": lambda ported: ported.to(0),
    "to(half)": lambda ported: ported.to(torch.float16),
    "to(dtype=)": lambda ported: ported.to("cpu", dtype=torch.bfloat16),
    "to(double tensor)": lambda ported: ported.to(torch.ones(1, dtype=torch.float64)),
    "to(memory_format=)": lambda ported: ported.to(memory_format=torch.channels_last),
    "to('wibble')": lambda ported: ported.to("wibble"),
    "cuda": lambda ported: ported.cuda(),
    "cuda(0)": lambda ported: ported.cuda(0),
    "half": lambda ported: ported.half(),
    "double": lambda ported: ported.double(),
    "bfloat16": lambda ported: ported.bfloat16(),
    "type": lambda ported: ported.type(torch.float64),
    "xpu": lambda ported: ported.xpu(),
    "to_empty": lambda ported: ported.to_empty(device="cpu"),
    "share_memory": lambda ported: ported.share_memory(),
}


@pytest.fixture
def ported(make_model, batches):
    ported = to_ipu(make_model(), nn.CrossEntropyLoss())
    ported(*batches[0])
    return ported


@pytest.mark.parametrize("call", HARMLESS.values(), ids=HARMLESS)
def test_a_harmless_call_returns_the_ported_model_on_its_device(call, ported, batches):
    result = call(ported)
    result.train()(*batches[1])

    assert result is ported
    assert ported.report().num_training_calls == 2


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_a_call_that_would_leave_the_device_is_refused_with_advice(call, ported, batches):
    with pytest.raises(DeviceError) as caught:
        call(ported)
    ported(*batches[1])

    assert caught.value.code == "D003"
    assert any("to_ipu(..., device=...)" in line for line in caught.value.finding.help)
    assert ported.report().num_training_calls == 2


def test_half_is_harmless_for_a_model_in_half_precision(make_model, batches):
    with pytest.warns(UserWarning, match="P003"):
        ported = to_ipu(make_model(), nn.CrossEntropyLoss(), options=PortOptions(precision="float16"))

    assert ported.half() is ported
    with pytest.raises(DeviceError, match="D003"):
        ported.float()


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
