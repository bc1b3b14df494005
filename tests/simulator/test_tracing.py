"""What forward may do while it is traced, as the executor's user sees it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn


def executor_of(poptorch, forward):
    model = nn.Module()
    model.forward = forward
    return poptorch.inferenceModel(model)


def run(poptorch, forward, *args):
    return executor_of(poptorch, forward)(*args)


def test_forward_runs_once_whatever_the_number_of_micro_batches(poptorch):
    runs = []

    def forward(x):
        runs.append(1)
        return x + 1

    model = nn.Module()
    model.forward = forward
    executor = poptorch.inferenceModel(model, poptorch.Options().deviceIterations(4))
    executor(torch.zeros(4))
    executor(torch.zeros(4))

    assert len(runs) == 1


def _devices(weight, x):
    return [str(weight.device), x.device.type, x.get_device()]


def test_inputs_and_weights_are_on_the_device(poptorch):
    model, seen = nn.Linear(1, 1), []
    model.register_forward_pre_hook(lambda m, args: seen.extend(_devices(m.weight, args[0])))

    poptorch.inferenceModel(model)(torch.ones(1, 1))

    assert seen == ["ipu:0", "ipu", 0]
    assert model.weight.device.type == "cpu"


@pytest.mark.parametrize("device", ["ipu", "ipu:0", torch.device("ipu", 0)])
def test_tensors_can_be_made_on_the_device(poptorch, device):
    assert run(poptorch, lambda x: x + torch.ones(2, device=device), torch.zeros(2)).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("name", ["zeros", "ones", "rand", "randn", "empty"])
def test_factories_without_a_device_are_forced_to_it_with_a_warning(poptorch, caplog, name):
    run(poptorch, lambda x: x + 0 * getattr(torch, name)(2), torch.ones(2))

    assert f"No device set in torch.{name}(): forcing to IPU" in caplog.text


def test_each_forced_factory_is_warned_of(poptorch, caplog):
    run(poptorch, lambda x: x + torch.zeros(2) + torch.zeros(2), torch.ones(2))

    assert caplog.text.count("No device set in torch.zeros()") == 2


def test_factories_are_as_before_after_a_failed_trace(poptorch):
    def forward(x):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        run(poptorch, forward, torch.ones(1))

    assert torch.zeros(1).device.type == "cpu"


def test_host_tensors_are_refused(poptorch):
    constant = torch.tensor([1, 2])

    with pytest.raises(poptorch.Error) as caught:
        executor_of(poptorch, lambda x: x + constant).compile(torch.ones(2))

    assert "Expected an IPU tensor but got tensor(device=cpu, shape=[2], dtype=Long)" in str(caught.value)
    assert 'via cpu_tensor.to("ipu")' in str(caught.value)


def test_host_tensors_can_be_moved_to_the_device(poptorch):
    constant = torch.tensor([1, 2])

    assert run(poptorch, lambda x: x + constant.to("ipu"), torch.zeros(2)).tolist() == [1.0, 2.0]


def test_python_numbers_and_scalars_are_fine(poptorch):
    scalar = torch.tensor(3.0)

    assert run(poptorch, lambda x: x + 1 + scalar, torch.zeros(1)).item() == 4.0


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.sum()),
        lambda x: int(x.sum()),
        lambda x: float(x.sum()),
        lambda x: x.numpy(),
        lambda x: x.tolist(),
    ],
    ids=["item", "bool", "int", "float", "numpy", "tolist"],
)
def test_values_cannot_be_read(poptorch, read):
    with pytest.raises(poptorch.Error, match="aten::item is only supported in eager mode, but was intercepted"):
        run(poptorch, read, torch.ones(2))


@pytest.mark.parametrize("move", [lambda x: x.cpu(), lambda x: x.to("cpu")])
def test_tensors_cannot_leave_the_device(poptorch, move):
    with pytest.raises(poptorch.Error, match=r"Illegal move to CPU \(via `.to\(\"cpu\"\)`\) when using the dispatcher"):
        run(poptorch, move, torch.ones(2))


def test_a_tensor_kept_on_the_module_is_warned_of_with_code_and_remedy(caplog):
    import porting.simulator as simulator

    class Keeping(torch.nn.Module):
        def forward(self, x):
            self.last = x * 2
            return self.last

    simulator.inferenceModel(Keeping())(torch.ones(2))

    (warning,) = [message for message in caplog.messages if "`self.last`" in message]
    assert warning.startswith("C014: ")
    assert warning.endswith("belongs in a registered buffer")


def test_a_refused_move_names_where_to(poptorch):
    with pytest.raises(
        poptorch.Error, match=r"Illegal move to cuda \(via `.to\(\"cuda\"\)`\) when using the dispatcher"
    ):
        run(poptorch, lambda x: x.to("cuda"), torch.ones(2))


@pytest.mark.parametrize("name", ["nonzero", "unique"])
def test_shapes_cannot_depend_on_values(poptorch, name):
    with pytest.raises(
        poptorch.Error, match="are unsupported because the output shape is determined by the tensor values"
    ):
        run(poptorch, lambda x: getattr(torch, name)(x), torch.ones(2))


def test_reading_with_a_mask_is_torchs_own_exception(poptorch):
    from torch._subclasses.fake_tensor import DynamicOutputShapeException

    with pytest.raises(DynamicOutputShapeException):
        run(poptorch, lambda x: x[x > 0], torch.ones(2))


def test_writing_with_a_mask_is_fine(poptorch):
    def forward(x):
        y = x.clone()
        y[y > 1] = 0
        return y

    assert run(poptorch, forward, torch.tensor([1.0, 2.0])).tolist() == [1.0, 0.0]


def test_printing_shows_that_the_value_is_unavailable(poptorch, capsys):
    run(poptorch, lambda x: print(x), torch.ones(2))  # noqa: T201

    assert "<unavailable>" in capsys.readouterr().out


def test_shapes_are_python_numbers(poptorch):
    seen = []

    run(poptorch, lambda x: seen.append(type(x.shape[0])), torch.ones(2))

    assert seen == [int]


def test_a_part_that_only_runs_on_the_host_is_fine(poptorch):
    class Checks(nn.Module):
        def __init__(self):
            super().__init__()
            self.host_only = nn.Linear(1, 1)

        def forward(self, x):
            if not poptorch.isRunningOnIpu():
                print(self.host_only(x))  # noqa: T201
            return x + 1

    assert poptorch.inferenceModel(Checks())(torch.ones(1)).item() == 2.0


def test_an_input_may_ask_for_a_gradient_in_forward(poptorch):
    assert run(poptorch, lambda x: x.requires_grad_() * 2, torch.ones(1)).item() == 2.0


def test_several_executors_may_exist_at_once(poptorch):
    executors = [executor_of(poptorch, lambda x, n=n: x + n) for n in range(3)]

    assert [executor(torch.zeros(1)).item() for executor in executors] == [0.0, 1.0, 2.0]


def test_an_argument_that_a_forwarding_wrapper_leaves_out_is_pythons_own_error(poptorch):
    def inner(a, b):
        return a + b

    with pytest.raises(TypeError, match="missing 1 required positional argument: 'b'"):
        run(poptorch, lambda *args, **kwargs: inner(*args, **kwargs), torch.ones(1))


def test_an_executor_cannot_be_called_in_forward(poptorch):
    inner = poptorch.inferenceModel(nn.Linear(1, 1))

    with pytest.raises(poptorch.Error, match="Inputs must be on the CPU, got a tensor on ipu:0"):
        run(poptorch, lambda x: inner(x), torch.ones(1, 1))


def test_traced_tensors_have_numbers_of_their_own(poptorch):
    numbers = []

    def forward(x):
        y = x + 1
        numbers.extend([poptorch.getIpuTensorId(x), poptorch.getIpuTensorId(y), poptorch.getIpuTensorId(x)])
        return y

    run(poptorch, forward, torch.ones(1))

    first, second, again = numbers
    assert first == again != second
    with pytest.raises(poptorch.Error, match="IPU"):
        poptorch.getIpuTensorId(torch.ones(1))


FACTORIES = {
    "arange": lambda: torch.arange(2),
    "empty": lambda: torch.empty(2),
    "full": lambda: torch.full((2,), 1.0),
    "linspace": lambda: torch.linspace(0, 1, 2),
    "logspace": lambda: torch.logspace(0, 1, 2),
    "ones": lambda: torch.ones(2),
    "rand": lambda: torch.rand(2),
    "randint": lambda: torch.randint(2, (2,)),
    "randn": lambda: torch.randn(2),
    "randperm": lambda: torch.randperm(2),
    "tensor": lambda: torch.tensor([1.0, 2.0]),
    "zeros": lambda: torch.zeros(2),
    "normal": lambda: torch.normal(0.0, 1.0, (2,)),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_every_patched_factory_makes_device_tensors(poptorch, caplog, name):
    devices = []

    run(poptorch, lambda x: (devices.append(FACTORIES[name]().device.type), x)[1], torch.ones(2))

    assert devices == ["ipu"]
    assert caplog.text.count(f"No device set in torch.{name}(): forcing to IPU") == 1


@pytest.mark.parametrize("name", ["zeros_like", "full_like"])
def test_factories_like_a_host_tensor_are_forced_too(poptorch, caplog, name):
    host, fill = torch.ones(2), [3.0] if name == "full_like" else []

    result = run(poptorch, lambda x: x + getattr(torch, name)(host, *fill), torch.ones(2))

    assert result.tolist() == ([4.0, 4.0] if fill else [1.0, 1.0])
    assert f"No device set in torch.{name}(): forcing to IPU" in caplog.text


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.LongTensor([1, 2]),
        lambda: torch.Tensor([1.0, 2.0]),
        lambda: torch.from_numpy(np.ones(2)),
        lambda: torch.as_tensor([1, 2]),
        lambda: torch.eye(2),
        lambda: torch.ones_like(torch.ones(2, device="cpu")),
        lambda: torch.zeros(2, device="cpu"),
    ],
)
def test_other_factories_make_host_tensors(poptorch, make):
    with pytest.raises(poptorch.Error, match="Expected an IPU tensor but got tensor"):
        run(poptorch, lambda x: x + make(), torch.ones(2))


def test_a_factory_with_a_device_is_not_warned_of(poptorch, caplog):
    run(poptorch, lambda x: x + torch.zeros(2, device=x.device) + torch.ones(2, device="ipu"), torch.ones(2))

    assert "No device set" not in caplog.text


def test_factories_are_warned_of_when_the_trace_fails_later(poptorch, caplog):
    with pytest.raises(poptorch.Error):
        run(poptorch, lambda x: (x + torch.zeros(2)).sum().item(), torch.ones(2))

    assert "No device set in torch.zeros(): forcing to IPU" in caplog.text


@pytest.mark.parametrize("move", [lambda t: t.to("ipu"), lambda t: t.ipu(), lambda t: t.to(torch.device("ipu:0"))])
def test_a_host_tensor_with_a_gradient_cannot_become_a_constant(poptorch, move):
    host = torch.ones(2, requires_grad=True)

    with pytest.raises(poptorch.Error, match="An input tensor to an IPU model can not have requires_grad set to True."):
        run(poptorch, lambda x: x + move(host), torch.ones(2))


@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
def test_the_deprecated_range_makes_a_device_tensor_too(poptorch, caplog):
    assert run(poptorch, lambda x: x * torch.range(1, 3), torch.ones(3)).tolist() == [1.0, 2.0, 3.0]
    assert "No device set in torch.range(): forcing to IPU" in caplog.text


def test_masks_may_be_bytes(poptorch):
    def forward(x):
        x = x.clone()
        x[(x > 1).byte()] = 5.0
        return x.masked_fill((x < 1).byte(), 7.0)

    assert run(poptorch, forward, torch.tensor([0.0, 1.0, 2.0])).tolist() == [7.0, 1.0, 5.0]


def test_tensors_know_that_they_are_on_the_device(poptorch):
    seen = []

    def forward(x):
        seen.extend([x.is_ipu, x.is_cpu, x.is_cuda, str(x.device), str((x + 1).device)])
        return x

    run(poptorch, forward, torch.ones(2))

    assert seen == [True, False, False, "ipu:0", "ipu:0"]


@pytest.mark.parametrize("call", [lambda x: len(x) * x, lambda x: sum(row for row in x) + x, lambda x: x * x.size(0)])
def test_the_length_is_known(poptorch, call):
    x = torch.arange(4.0).reshape(2, 2)

    assert torch.equal(run(poptorch, call, x), call(x))


def test_values_can_be_returned_in_any_structure(poptorch):
    model = nn.Linear(1, 1)
    model.forward = lambda x: {"a": [x, x], "b": (model.weight, None, 3), "c": "text"}

    result = poptorch.inferenceModel(model)(torch.ones(1))

    assert result["a"][0].tolist() == result["a"][1].tolist() == [1.0]
    assert torch.equal(result["b"][0], model.weight.detach())
    assert (result["b"][1:], result["c"]) == ((None, 3), "text")


def test_what_never_was_on_the_device_is_returned_with_a_warning(poptorch):
    host = torch.ones(2)

    executor = executor_of(poptorch, lambda x: (x, host))

    with pytest.warns(UserWarning, match="Output expected to be on the IPU but is on cpu"):
        first = executor(torch.zeros(1))[1]

    assert first is executor(torch.zeros(1))[1] is host


@pytest.mark.parametrize("call", [lambda x: x.detach(), lambda x: x.data])
def test_detached_values_are_the_same_values(poptorch, call):
    assert run(poptorch, call, torch.ones(2)).tolist() == [1.0, 1.0]


def test_gradients_do_not_flow_through_no_grad_or_detach(poptorch):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.trained, self.frozen, self.detached = (nn.Parameter(torch.ones(2)) for _ in range(3))

        def forward(self, x):
            with torch.no_grad():
                scale = self.frozen * 2
            return poptorch.identity_loss((x * self.trained * scale + self.detached.detach()).sum(), "none")

    model = Model()
    executor = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.5))
    executor(torch.ones(2))
    executor.copyWeightsToHost()

    assert model.trained.tolist() == [0.0, 0.0]
    assert model.frozen.tolist() == model.detached.tolist() == [1.0, 1.0]


def test_autograd_in_forward_is_refused(poptorch):
    weight = nn.Parameter(torch.ones(2))
    model = nn.Module()
    model.weight = weight
    model.forward = lambda x: torch.autograd.grad((x * model.weight).sum(), model.weight)[0]

    with pytest.raises(poptorch.Error, match="grad"):
        poptorch.inferenceModel(model)(torch.ones(2))
