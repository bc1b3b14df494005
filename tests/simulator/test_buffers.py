"""Buffers: they live on the device, and forward may write into them but not replace them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting import PortingError, PortOptions, to_ipu

REASSIGNED = (
    "Buffer y is reassigned within the model when calling the forward method. This is not supported. Consider using "
    "self.y.copy_(src) to copy data from a source tensor, where src is the name of the source tensor."
)


class Buffered(nn.Module):
    """Has a buffer `y`; `change(self, x)` is what forward does with it before it returns it."""

    def __init__(self, change, y=0.0):
        super().__init__()
        self.register_buffer("y", torch.tensor([y]))
        self.change = change

    def forward(self, x):
        self.change(self, x)
        return x + self.y


def add_one(model, _x):
    model.y += 1


WRITES = {
    "+=": add_one,
    "add_": lambda model, x: model.y.add_(1),
    "copy_": lambda model, x: model.y.copy_(model.y + 1),
    "slice": lambda model, x: model.y[0:1].add_(1),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_written_buffer_keeps_its_value_on_the_device(poptorch, write):
    executor = poptorch.inferenceModel(Buffered(WRITES[write]))

    results = [executor(torch.zeros(1)).item() for _ in range(3)]

    assert results == [1.0, 2.0, 3.0]


def test_a_written_buffer_moves_on_with_each_micro_batch(poptorch):
    executor = poptorch.inferenceModel(Buffered(add_one), poptorch.Options().deviceIterations(3))

    assert executor(torch.zeros(3)).tolist() == [1.0, 2.0, 3.0]


def test_inference_leaves_the_hosts_buffers_until_they_are_fetched(poptorch):
    model = Buffered(add_one)
    executor = poptorch.inferenceModel(model)

    executor(torch.zeros(1))
    before = model.y.item()
    executor.copyWeightsToHost()

    assert (before, model.y.item()) == (0.0, 1.0)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool])
def test_written_buffers_of_integers_and_truth_values_are_constants(poptorch, dtype):
    model = nn.Module()
    model.register_buffer("count", torch.zeros(1, dtype=dtype))

    def forward(x):
        model.count.copy_(model.count + 1)
        return x + model.count

    model.forward = forward
    executor = poptorch.inferenceModel(model, poptorch.Options().deviceIterations(2))

    results = [executor(torch.zeros(2)).tolist() for _ in range(2)]
    executor.copyWeightsToHost()

    assert results == [[1.0, 1.0]] * 2
    assert (model.count.dtype, model.count.item()) == (dtype, 0)


def test_a_lost_write_is_logged_with_its_line(poptorch, capfd):
    model = Buffered(lambda model, _x: model.count.add_(1))
    model.register_buffer("count", torch.tensor(0))

    poptorch.inferenceModel(model)(torch.zeros(1))

    assert "C019: what `forward` writes into the int64 buffer `count` is lost" in capfd.readouterr().err


def test_integer_buffers_are_narrowed_on_the_device(poptorch):
    model = nn.Module()
    model.register_buffer("count", torch.tensor(7))
    model.forward = lambda x: (x, model.count)

    count = poptorch.inferenceModel(model)(torch.zeros(1))[1]

    assert (count.dtype, count.item()) == (torch.int32, 7)


def test_batch_norm_keeps_its_statistics_as_on_the_host(poptorch):
    class Task(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(2)

        def forward(self, x):
            return nn.functional.mse_loss(self.norm(x), torch.zeros_like(x))

    ours, theirs = Task(), Task()
    executor = poptorch.trainingModel(ours, poptorch.Options().deviceIterations(2))
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8, 2, generator=generator)

    executor(x)
    theirs(x[:4])
    theirs(x[4:])

    torch.testing.assert_close(ours.norm.running_mean, theirs.norm.running_mean)
    torch.testing.assert_close(ours.norm.running_var, theirs.norm.running_var)
    assert (ours.norm.num_batches_tracked.item(), theirs.norm.num_batches_tracked.item()) == (0, 2)


def test_statistics_read_after_batch_norm_are_those_from_before_it(poptorch):
    class Watched(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(2)

        def forward(self, x):
            return self.norm(x), self.norm.running_mean, self.norm.running_var * 2

    ours, theirs = Watched(), Watched()
    executor = poptorch.inferenceModel(ours, poptorch.Options().deviceIterations(2))
    x = torch.randn(8, 2, generator=torch.Generator().manual_seed(0))

    _normalised, means, doubled = executor(x)
    _normalised, mean, twice = theirs(x[:4])

    torch.testing.assert_close(means, torch.cat([torch.zeros(2), mean]))
    torch.testing.assert_close(doubled, torch.cat([torch.full((2,), 2.0), twice]))


def test_buffers_without_persistence_live_on_the_device_too(poptorch):
    model = nn.Module()
    model.register_buffer("y", torch.zeros(1), persistent=False)

    def forward(x):
        model.y += 1
        return x + model.y

    model.forward = forward
    executor = poptorch.inferenceModel(model)
    executor(torch.zeros(1))

    assert executor(torch.zeros(1)).item() == 2.0


# -- errors


def reassign(model, x):
    model.y = x + 1


def test_a_reassigned_buffer_is_refused(poptorch):
    with pytest.raises(poptorch.Error) as caught:
        poptorch.inferenceModel(Buffered(reassign))(torch.ones(1))

    assert caught.value.message == REASSIGNED
    assert caught.value.type == "poptorch_py_error"


def test_a_removed_buffer_is_refused(poptorch):
    class Removes(Buffered):
        def forward(self, x):
            del self.y
            return x

    with pytest.raises(poptorch.Error, match="Buffer y is removed from the model when calling the forward method."):
        poptorch.inferenceModel(Removes(add_one))(torch.ones(1))


def test_a_reassigned_parameter_is_refused(poptorch):
    class Reassigns(nn.Linear):
        def forward(self, x):
            self._parameters["weight"] = self.weight + 1
            return super().forward(x)

    with pytest.raises(poptorch.Error, match="Parameter weight is reassigned within the model"):
        poptorch.inferenceModel(Reassigns(1, 1))(torch.ones(1, 1))


def test_a_model_with_a_refused_buffer_is_as_before(poptorch):
    model = Buffered(reassign)
    buffer = model.y
    with pytest.raises(poptorch.Error, match="Buffer y is reassigned"):
        poptorch.inferenceModel(model)(torch.ones(1))

    assert model.y is buffer
    assert model(torch.ones(1)).item() == 3.0


# -- replication


def replicated(poptorch, *, broadcast):
    options = poptorch.Options().replicationFactor(2).deviceIterations(2)
    return options if broadcast else options.broadcastBuffers(False)


def test_written_buffers_cannot_be_broadcast_to_replicas(poptorch):
    executor = poptorch.inferenceModel(Buffered(add_one), replicated(poptorch, broadcast=True))

    with pytest.raises(poptorch.Error, match=r"PopTorch does not support broadcasting buffers\. If your model is able"):
        executor(torch.zeros(4))


def test_of_many_written_buffers_a_few_are_named_and_the_others_counted():
    model = nn.Sequential(*(Buffered(add_one) for _ in range(5)), nn.Linear(1, 1))
    ported = to_ipu(model, nn.MSELoss(), options=PortOptions(micro_batch=2, replicas=2))

    with pytest.raises(PortingError, match=r"\(modified: 0.y, 1.y, 2.y and 2 more\)"):
        ported(torch.ones(4, 1), torch.ones(4, 1))


@pytest.mark.parametrize("write", WRITES)
def test_every_way_to_write_a_buffer_is_refused_with_replicas(poptorch, write):
    executor = poptorch.inferenceModel(Buffered(WRITES[write]), replicated(poptorch, broadcast=True))

    with pytest.raises(poptorch.Error, match="does not support broadcasting buffers"):
        executor(torch.zeros(4))


@pytest.mark.parametrize("broadcast", [True, False])
def test_replicas_of_batch_norm_train_and_the_first_ones_statistics_come_to_the_host(poptorch, broadcast):
    class Task(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(2)

        def forward(self, x):
            return nn.functional.mse_loss(self.norm(x), torch.zeros_like(x))

    ours, theirs = Task(), Task()
    executor = poptorch.trainingModel(ours, replicated(poptorch, broadcast=broadcast))
    x = torch.randn(16, 2, generator=torch.Generator().manual_seed(0))

    executor(x)
    theirs(x[:4])
    theirs(x[8:12])

    torch.testing.assert_close(ours.norm.running_mean, theirs.norm.running_mean)
    torch.testing.assert_close(ours.norm.running_var, theirs.norm.running_var)


def test_replicas_may_write_into_a_buffer_of_integers(poptorch):
    model = Buffered(lambda model, _x: model.count.add_(1))
    model.register_buffer("count", torch.tensor(0))

    assert poptorch.inferenceModel(model, replicated(poptorch, broadcast=True))(torch.zeros(4)).tolist() == [0.0] * 4


def test_constant_buffers_are_broadcast_to_replicas(poptorch):
    executor = poptorch.inferenceModel(Buffered(lambda *_: None, y=2.0), replicated(poptorch, broadcast=True))

    assert executor(torch.zeros(4)).tolist() == [2.0] * 4


def test_replicas_may_have_buffers_of_their_own(poptorch):
    def add_input(model, x):
        model.y += x

    model = Buffered(add_input)
    executor = poptorch.inferenceModel(model, replicated(poptorch, broadcast=False))

    results = executor(torch.tensor([1.0, 10.0, 2.0, 20.0]))
    executor.copyWeightsToHost()

    assert results.tolist() == [2.0, 20.0, 5.0, 50.0]
    assert model.y.item() == 3.0


# -- attributes that are no buffers


def test_a_tensor_that_is_no_buffer_is_a_constant(poptorch):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.count = torch.zeros(1)

        def forward(self, x):
            count = self.count.to("ipu")
            count += 1
            return x + count

    executor = poptorch.inferenceModel(Counts())

    assert [executor(torch.zeros(1)).item() for _ in range(3)] == [1.0, 1.0, 1.0]


def test_a_python_number_is_a_constant(poptorch):
    class Counts(nn.Module):
        count = 0

        def forward(self, x):
            self.count += 1
            return x + self.count

    executor = poptorch.inferenceModel(Counts())

    assert [executor(torch.zeros(1)).item() for _ in range(3)] == [1.0, 1.0, 1.0]


# -- updating named buffers


def test_named_buffers_need_the_option(poptorch):
    executor = poptorch.inferenceModel(Buffered(add_one))
    executor(torch.zeros(1))

    with pytest.raises(poptorch.Error, match="No named buffers marked as updatable via updatableNamedBuffers option"):
        executor.copyNamedBuffersToDevice()


def test_named_buffers_need_a_compiled_model(poptorch):
    with pytest.raises(poptorch.Error, match="Model has not been compiled or has been destroyed."):
        poptorch.inferenceModel(Buffered(add_one)).copyNamedBuffersToDevice()


def test_named_buffers_are_sent_and_no_other_weight(poptorch):
    model = nn.Module()
    model.weight = nn.Parameter(torch.zeros(1))
    model.register_buffer("y", torch.zeros(1))
    model.forward = lambda x: x + model.weight + model.y
    executor = poptorch.inferenceModel(model, poptorch.Options().updatableNamedBuffers(["y"]))
    executor(torch.zeros(1))
    with torch.no_grad():
        model.weight += 100
        model.y += 1

    executor.copyNamedBuffersToDevice()

    assert executor(torch.zeros(1)).item() == 1.0


def test_named_buffers_must_exist(poptorch):
    executor = poptorch.inferenceModel(Buffered(add_one), poptorch.Options().updatableNamedBuffers(["z"]))

    with pytest.raises(poptorch.poptorch_core.Error, match="The model has no buffers called z"):
        executor(torch.zeros(1))
