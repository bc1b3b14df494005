"""What Python code may do with device tensors: factories, devices, casts, and what it may not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.capture import capture_step

HOST = torch.ones(4)

FORCED = {
    "arange": lambda _w: torch.arange(3),
    "empty": lambda _w: torch.empty(3),
    "full": lambda _w: torch.full((3,), 2.0),
    "linspace": lambda _w: torch.linspace(0, 1, 3),
    "logspace": lambda _w: torch.logspace(0, 1, 3),
    "ones": lambda _w: torch.ones(3),
    "rand": lambda _w: torch.rand(3),
    "randint": lambda _w: torch.randint(0, 3, (3,)),
    "randn": lambda _w: torch.randn(3),
    "randperm": lambda _w: torch.randperm(3),
    "tensor": lambda _w: torch.tensor([1.0, 2.0, 3.0]),
    "zeros": lambda _w: torch.zeros(3),
    "normal": lambda _w: torch.normal(0.0, 1.0, (3,)),
}

NAMED = {
    "arange": lambda w: torch.arange(3, device="ipu"),
    "empty": lambda w: torch.empty(3, device="ipu:0"),
    "eye": lambda w: torch.eye(3, device="ipu")[0],
    "full": lambda w: torch.full((3,), 2.0, device=w.device),
    "ones": lambda w: torch.ones(3, device=w.device),
    "rand": lambda w: torch.rand(3, device=torch.device("ipu")),
    "as_tensor": lambda w: torch.as_tensor([1.0, 2.0, 3.0], device="ipu"),
    "to": lambda w: HOST[:3].to("ipu"),
    "to a device object": lambda w: HOST[:3].to(w.device),
    "to like another": lambda w: HOST[:3].to(w),
    "type as": lambda w: HOST[:3].type_as(w),
    "type as, of another type": lambda w: HOST[:3].int().type_as(w),
    "new_zeros": lambda w: w.new_zeros(3),
    "new_ones": lambda w: w.new_ones(3),
    "new_full": lambda w: w.new_full((3,), 2.0),
    "new_tensor": lambda w: w.new_tensor([1.0, 2.0, 3.0]),
    "new": lambda w: w.new(3),
    "new from data": lambda w: w.new([1.0, 2.0, 3.0]),
    "zeros_like": lambda w: torch.zeros_like(w[0, :3], device=w.device),
    "ones_like": lambda w: torch.ones_like(w[0, :3]),
    "rand_like": lambda w: torch.rand_like(w[0, :3], device="ipu"),
}

MOVES = {
    "cpu": lambda w: w.cpu(),
    "cuda": lambda w: w.cuda(),
    "to cpu": lambda w: w.to("cpu"),
    "to a device object": lambda w: w.to(torch.device("cpu")),
    "to cuda": lambda w: w.to("cuda:0"),
    "to a host tensor's device": lambda w: w.to(HOST),
    "type as a host tensor": lambda w: w.type_as(HOST),
    "new_tensor on the host": lambda w: w.new_tensor([1.0], device="cpu"),
    "new_zeros on the host": lambda w: w.new_zeros(3, device="cpu"),
    "like a device tensor, on the host": lambda w: torch.ones_like(w, device="cpu"),
}

DERIVATIVES = {
    "autograd.grad": lambda w: torch.autograd.grad(w.sum(), w),
    "autograd.backward": lambda w: torch.autograd.backward(w.sum()),
    "backward": lambda w: w.sum().backward(),
    "register_hook": lambda w: (w * 2).register_hook(lambda grad: grad),
    "retain_grad": lambda w: (w * 2).retain_grad(),
}


@pytest.mark.parametrize("function", FORCED.values(), ids=FORCED.keys())
def test_a_factory_without_a_device_makes_a_device_tensor(trace, function):
    graph = trace(function)

    assert [info.shape for info in graph.outputs] == [(3,)]


@pytest.mark.parametrize("function", FORCED.values(), ids=FORCED.keys())
def test_a_factory_without_a_device_is_noted_with_its_line(trace, function):
    (finding,) = trace(function).findings

    assert finding.code == "C011"
    assert (finding.place.file, finding.place.line) == (__file__, function.__code__.co_firstlineno)


def test_the_note_has_the_words_of_the_device():
    class Model(nn.Module):
        def forward(self, x):
            return x + torch.zeros(3)

    (finding,) = capture_step(Model(), [torch.ones(3)], mode="inference").findings

    assert finding.message == "No device set in torch.zeros(): forcing to IPU"


@pytest.mark.parametrize("function", NAMED.values(), ids=NAMED.keys())
def test_a_tensor_made_on_the_device_belongs_to_the_graph(trace, function):
    graph = trace(function)

    assert [info.shape for info in graph.outputs] == [(3,)]
    assert graph.host_outputs == 0
    assert graph.findings == ()


def test_numbers_become_constants_with_their_values(trace):
    graph = trace(lambda w: w + torch.tensor([1.0, 2.0, 3.0, 4.0]))

    assert [value.tolist() for value in graph.constant_values] == [[1.0, 2.0, 3.0, 4.0]]


def test_a_moved_host_tensor_becomes_a_constant(trace):
    graph = trace(lambda w: w + HOST.to("ipu"))

    assert [value.tolist() for value in graph.constant_values] == [[1.0, 1.0, 1.0, 1.0]]


def test_a_constant_is_a_copy_of_the_host_tensor(trace):
    host = torch.ones(4)

    graph = trace(lambda w: w + host.to("ipu"))
    host.zero_()

    assert graph.constant_values[0].tolist() == [1.0] * 4


def test_a_device_tensor_as_data_is_copied(trace):
    graph = trace(lambda w: torch.tensor(w, device="ipu").add_(1))

    assert [info.shape for info in graph.outputs] == [(5, 4)]
    assert not graph.mutated_parameters
    assert not graph.mutated_inputs


UNCHANGED = {
    "as_tensor": lambda x: torch.as_tensor(x),
    "as_tensor with its device": lambda x: torch.as_tensor(x, device=x.device),
    "asarray": lambda x: torch.asarray(x),
    "float": lambda x: x.float(),
    "to": lambda x: x.to(torch.float32),
    "type": lambda x: x.type(torch.FloatTensor),
    "type_as": lambda x: x.type_as(x),
    "contiguous": lambda x: x.contiguous(),
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_what_changes_nothing_is_the_tensor_itself_and_no_operator(trace, name):
    is_same = []

    def forward(w):
        x = w * 2
        result = UNCHANGED[name](x)
        is_same.append(result is x)
        return result

    graph = trace(forward)

    assert is_same == [True]
    assert [node.target for node in graph.graph.nodes if node.op == "call_function"] == [torch.ops.aten.mul.Tensor]


def test_a_cast_to_another_type_is_an_operator(trace):
    graph = trace(lambda w: w.half())

    assert [info.dtype for info in graph.outputs] == [torch.float16]


def test_scalars_of_the_host_may_be_mixed_in(trace):
    scalar = torch.tensor(2.0)

    graph = trace(lambda w: w * scalar)

    assert [value.item() for value in graph.constant_values] == [2.0]


def test_the_device_is_the_ipu(trace):
    seen = []

    trace(lambda w: seen.append((w.device, w.is_cpu, w.is_ipu, w.is_cuda)))

    assert seen == [(torch.device("ipu:0"), False, True, False)]


def test_moving_to_the_device_again_changes_nothing(trace):
    graph = trace(lambda w: w.to("ipu").to(w.device))

    assert graph.operators == []


@pytest.mark.parametrize("function", MOVES.values(), ids=MOVES.keys())
def test_moving_to_the_host_is_refused_at_its_line(refusal, function):
    finding = refusal(function)

    assert finding.code == "C004"
    assert finding.place.line == function.__code__.co_firstlineno


def test_host_tensors_are_refused_with_their_shape_and_a_remedy(refusal):
    finding = refusal(lambda w: w + HOST)

    assert finding.code == "C003"
    assert finding.notes == ("shape=[4]", "dtype=float32")
    assert "device=x.device" in finding.help[0]


def test_a_factory_of_the_host_is_refused_where_it_is_mixed_in(refusal):
    finding = refusal(lambda w: w + torch.ones(4, device="cpu"))

    assert finding.code == "C003"


def test_host_tensors_are_no_indices(refusal):
    rows = torch.tensor([0, 2])

    finding = refusal(lambda w: w[rows])

    assert finding.code == "C003"


def test_host_tensors_are_no_indices_of_a_write(refusal):
    rows = torch.tensor([0, 2])

    finding = refusal(lambda w: (w * 2).__setitem__(rows, 0.0))

    assert finding.code == "C003"


def test_lists_are_indices(trace):
    graph = trace(lambda w: w[[0, 2, 1]])

    assert [info.shape for info in graph.outputs] == [(3, 4)]


def test_computing_on_the_host_alone_is_left_to_the_host(trace):
    graph = trace(lambda w: (w * float((HOST * 2).sum()), HOST * 3))

    assert [op.operator for op in graph.operators] == ["aten.mul.Tensor"]
    assert graph.host_outputs == 1


@pytest.mark.parametrize(
    ("cast", "dtype"),
    [
        (lambda w: w.half(), torch.float16),
        (lambda w: w.to(torch.float16), torch.float16),
        (lambda w: w.type(torch.float16), torch.float16),
        (lambda w: w.type(torch.HalfTensor), torch.float16),
        (lambda w: w.type("torch.cuda.HalfTensor"), torch.float16),
        (lambda w: w.long(), torch.int32),
        (lambda w: w.type(torch.LongTensor), torch.int32),
        (lambda w: w.double(), torch.float32),
        (lambda w: w.to("ipu", torch.int64), torch.int32),
        (lambda w: w.to(w.int()), torch.int32),
        (lambda w: w.bool(), torch.bool),
    ],
)
def test_casts_give_the_type_that_the_device_has(trace, cast, dtype):
    graph = trace(cast)

    assert [info.dtype for info in graph.outputs] == [dtype]


def test_the_name_of_the_type_is_that_of_the_device(trace):
    seen = []

    trace(lambda w: seen.append(w.type()))

    assert seen == ["torch.ipu.FloatTensor"]


def test_data_is_the_tensor_without_its_gradient(trace):
    seen = []

    trace(
        lambda w: (seen.append((w.requires_grad, w.data.requires_grad)), nn.functional.l1_loss(w, w))[1],
        mode="training",
    )

    assert seen == [(True, False)]


def test_assigning_to_data_is_refused(refusal):
    finding = refusal(lambda w: setattr(w, "data", w * 2))

    assert finding.code == "C006"


@pytest.mark.parametrize("function", DERIVATIVES.values(), ids=DERIVATIVES.keys())
def test_differentiating_inside_forward_is_refused(refusal, function):
    finding = refusal(function)

    assert finding.code == "C007"
    assert finding.place.line == function.__code__.co_firstlineno


def test_transforms_of_torch_func_may_differentiate(trace):
    graph = trace(lambda w: torch.func.grad(lambda v: (v**2).sum())(w))

    assert [info.shape for info in graph.outputs] == [(5, 4)]


def test_drawing_from_a_generator_of_the_host_is_refused(refusal):
    finding = refusal(lambda w: torch.rand(3, generator=torch.Generator(), device="ipu"))

    assert finding.code == "C013"


def test_normal_with_tensors_is_drawn_on_the_device(trace):
    graph = trace(lambda w: torch.normal(w, 1.0))

    assert graph.is_random
