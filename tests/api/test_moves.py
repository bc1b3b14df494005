"""A ported model is a module like others, which is not moved, cast or wrapped."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.distributed as distributed
from torch import nn

from porting import PortOptions, to_ipu
from porting.diagnostics import DeviceError, OptionError

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


@pytest.fixture
def _process_group(tmp_path):
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("_process_group")
@pytest.mark.parametrize("make", [make_port, lambda: Around()], ids=["itself", "inside"])
def test_distributed_data_parallel_is_refused(make):
    text = refusal_of(lambda: nn.parallel.DistributedDataParallel(make())(*BATCH))

    assert "wrapped in `DistributedDataParallel`" in text
    assert "torchrun" in text


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torch_compile_is_refused():
    text = refusal_of(lambda: torch.compile(make_port()))

    assert "wrapped in `torch.compile`" in text
    assert "PortOptions(engine=...)" in text


def test_attributes_that_no_wrapper_asks_for_are_missing_as_ever():
    assert not hasattr(make_port(), "_no_such_attribute")


# -- a module among modules --------------------------------------------------------------------------------------------


class Around(nn.Module):
    """A module of a user's that has a ported model inside."""

    def __init__(self):
        super().__init__()
        self.inner = make_port()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, *batch):
        return self.inner(*batch)


@pytest.fixture
def around():
    around = Around()
    around(*BATCH)
    return around


def test_its_parts_are_the_models_own():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    ported = to_ipu(model, nn.CrossEntropyLoss(), device="sim")

    assert isinstance(ported, nn.Module)
    assert list(ported.named_modules()) == list(model.named_modules())
    assert list(ported.children()) == list(model.children())
    assert dict(ported.named_parameters()) == dict(model.named_parameters())
    assert dict(ported.named_buffers()) == dict(model.named_buffers())
    assert list(ported.state_dict()) == list(model.state_dict())
    assert ported.get_submodule("1") is model[1]


def test_a_part_that_is_exchanged_is_exchanged_in_the_model():
    ported = to_ipu(nn.Sequential(nn.Linear(4, 3)), nn.CrossEntropyLoss(), device="sim")
    layer = nn.Linear(4, 3)

    setattr(ported, "0", layer)

    assert ported.model[0] is layer


def test_a_module_around_it_has_its_parts_under_its_own_name(around):
    names = ["scale", "inner.weight", "inner.bias"]

    assert [name for name, _tensor in around.named_parameters()] == names
    assert list(around.state_dict()) == names


def test_a_module_around_it_trains_it_and_has_what_it_learns(around):
    before = around.state_dict()["inner.weight"].clone()

    around(*BATCH)

    assert not torch.equal(around.state_dict()["inner.weight"], before)


def test_a_module_around_it_switches_its_mode(around):
    around.eval()
    before = around.inner.report().num_training_calls

    around(*BATCH)
    assert around.inner.report().num_training_calls == before
    around.train()
    around(*BATCH)
    assert around.inner.report().num_training_calls == before + 1


def test_what_a_module_around_it_loads_reaches_the_device(around):
    state = {name: torch.zeros_like(tensor) for name, tensor in around.state_dict().items()}

    around.load_state_dict(state)
    _output, loss = around(*BATCH)

    assert loss.item() == pytest.approx(torch.log(torch.tensor(3.0)).item())


def test_initialising_all_parts_of_a_module_around_it_reaches_the_device(around):
    around.apply(lambda part: nn.init.zeros_(part.weight) if isinstance(part, nn.Linear) else None)
    around.inner.model.bias.data.zero_()
    _output, loss = around(*BATCH)

    assert loss.item() == pytest.approx(torch.log(torch.tensor(3.0)).item())


@pytest.mark.parametrize("call", ["cpu", "float"])
def test_a_harmless_move_of_a_module_around_it_is_accepted(call, around):
    getattr(around, call)()
    around(*BATCH)

    assert around.inner.report().num_training_calls == 2


@pytest.mark.parametrize("call", ["half", "double", "share_memory"])
def test_moving_or_casting_a_module_around_it_is_refused(call, around):
    assert "around it" in refusal_of(getattr(around, call))


def test_exchanging_the_tensors_of_a_module_around_it_is_refused(around):
    with pytest.raises(OptionError, match="assign=True"):
        around.load_state_dict(around.state_dict(), assign=True)
    with pytest.raises(OptionError, match="assign=True"):
        around.inner.load_state_dict(around.inner.state_dict(), assign=True)


def test_copying_a_module_around_it_is_refused(around):
    assert "copied" in refusal_of(lambda: copy.deepcopy(around))


def test_porting_a_module_around_it_is_refused(around):
    with pytest.raises(OptionError, match=r"`model\.inner` is a PortedModel"):
        to_ipu(around, nn.CrossEntropyLoss())


def test_forward_hooks_observe_its_calls():
    ported, seen = make_port(), []
    ported.register_forward_pre_hook(lambda module, args: seen.append((module is ported, len(args))))
    handle = ported.register_forward_hook(lambda _module, _args, returned: seen.append(returned[1].item()))

    _output, loss = ported(*BATCH)
    handle.remove()
    ported(*BATCH)

    assert seen == [(True, 2), loss.item(), (True, 2)]


def test_hooks_of_all_modules_observe_its_calls():
    ported, seen = make_port(), []
    ported(*BATCH)
    handle = nn.modules.module.register_module_forward_hook(lambda module, _args, _returned: seen.append(module))
    try:
        with pytest.warns(UserWarning, match="a hook of all modules was added"):  # the inner ones do not run
            ported(*BATCH)
    finally:
        handle.remove()

    assert [module is ported for module in seen] == [True]
