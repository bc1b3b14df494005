from __future__ import annotations

import pytest
import torch
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
