"""What a device holds apart from the host: weights, buffers, constants."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step
from porting.engines.calls.call_plan import ReplicaGroups
from porting.engines.calls.device_state import DeviceState
from porting.engines.calls.memory_format import put_channels_last


class Counting(nn.Module):
    """Writes to a buffer and leaves another alone."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("width", torch.tensor(4))
        self.register_buffer("offset", torch.ones(4, dtype=torch.float64))

    def forward(self, x):
        self.count += 1
        return self.linear(x) + self.offset + self.width


class SameName(nn.Module):
    """Its input has the name of its parameter."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, weight):
        return weight[0] * self.weight


def graph_of(model, *example, mode="inference", **options):
    return capture_step(model, example, mode=mode, **options)


def host_of(model):
    return {name: tensor.detach().clone() for name, tensor in [*model.named_parameters(), *model.named_buffers()]}


def test_a_new_state_is_zeros_of_the_devices_types():
    state = DeviceState.for_graph(graph_of(Counting(), torch.ones(2, 4)))

    assert {name: tensor.dtype for name, tensor in state.parameters.items()} == {
        "linear.weight": torch.float32,
        "linear.bias": torch.float32,
    }
    assert {name: tensor.dtype for name, tensor in state.buffers[0].items()} == {
        "count": torch.float32,
        "width": torch.int32,
        "offset": torch.float32,
    }
    assert not any(tensor.any() for tensor in [*state.parameters.values(), *state.buffers[0].values()])


def test_parameters_of_a_training_graph_want_gradients():
    model = nn.Linear(4, 4)
    model.bias.requires_grad_(False)
    x = torch.ones(2, 4)

    training = DeviceState.for_graph(graph_of(model, x, x, mode="training", loss=F.mse_loss))
    inference = DeviceState.for_graph(graph_of(model, x))

    assert [tensor.requires_grad for tensor in training.parameters.values()] == [True, False]
    assert [tensor.requires_grad for tensor in inference.parameters.values()] == [False, False]


def test_upload_converts_to_the_devices_types():
    model = Counting()
    model.count += 7
    state = DeviceState.for_graph(graph_of(model, torch.ones(2, 4)))

    state.upload(host_of(model))

    assert torch.equal(state.parameters["linear.weight"], model.linear.weight)
    assert state.buffers[0]["count"] == 7
    assert torch.equal(state.buffers[0]["offset"], torch.ones(4))


def test_download_brings_back_what_a_call_may_change():
    model, x = Counting(), torch.ones(2, 4)
    state = DeviceState.for_graph(graph_of(model, x, x, mode="training", loss=F.mse_loss))
    host = host_of(model)

    state.download(host)

    assert not host["linear.weight"].any()
    assert not host["count"].any()


@pytest.mark.parametrize("values", [[1.0, 2.0], [float("nan"), 1.0]])
def test_restoring_brings_back_what_no_call_changes(values):
    state = DeviceState({"w": torch.tensor(values)}, [{}], {}, parts={"w": ("w",)})
    host = {"w": torch.zeros(2)}

    state.restore(host)

    assert torch.equal(host["w"].nan_to_num(5.0), torch.tensor(values).nan_to_num(5.0))


def test_restoring_keeps_the_precision_of_the_host():
    state = DeviceState({"w": torch.tensor([0.1])}, [{}], {}, parts={"w": ("w",)})
    host = {"w": torch.tensor([0.1], dtype=torch.float64)}

    state.restore(host)

    assert host["w"].item() == 0.1


def test_download_leaves_what_no_call_changes():
    model, x = Counting(), torch.ones(2, 4)
    model.linear.requires_grad_(False)
    state = DeviceState.for_graph(graph_of(model, x))
    host = host_of(model)

    state.download(host)

    assert torch.equal(host["linear.weight"], model.linear.weight)
    assert torch.equal(host["offset"], model.offset)


def test_only_named_tensors_are_uploaded():
    model = Counting()
    state = DeviceState.for_graph(graph_of(model, torch.ones(2, 4)))

    state.upload(host_of(model), names=["offset"])

    assert torch.equal(state.buffers[0]["offset"], torch.ones(4))
    assert not state.parameters["linear.weight"].any()


def test_replicas_share_buffers_that_nobody_writes_to():
    state = DeviceState.for_graph(graph_of(nn.BatchNorm1d(4).eval(), torch.ones(2, 4)), replicas=3)

    assert len(state.buffers) == 3
    assert state.buffers[0]["running_mean"] is state.buffers[2]["running_mean"]


def test_replicas_have_their_own_buffers_where_the_graph_writes():
    state = DeviceState.for_graph(graph_of(Counting(), torch.ones(2, 4)), replicas=3)

    assert len({id(buffers["count"]) for buffers in state.buffers}) == 3


def test_the_first_replicas_buffers_come_back():
    model = Counting()
    state = DeviceState.for_graph(graph_of(model, torch.ones(2, 4)), replicas=2)
    state.buffers[0]["count"] += 1
    state.buffers[1]["count"] += 5
    back = host_of(model)

    state.download(back)

    assert back["count"] == 1


def test_weights_keep_their_memory_format():
    model = nn.Conv2d(4, 4, 3).to(memory_format=torch.channels_last)

    state = DeviceState.for_graph(graph_of(model, torch.ones(1, 4, 5, 5)))

    assert state.parameters["weight"].is_contiguous(memory_format=torch.channels_last)


def test_expanded_weights_get_memory_of_their_own():
    model = SameName()
    model.weight = nn.Parameter(torch.ones(1).expand(3))

    state = DeviceState.for_graph(graph_of(model, torch.ones(2, 3)))
    state.upload({"weight": torch.tensor([1.0, 2.0, 3.0])})

    assert state.parameters["weight"].tolist() == [1.0, 2.0, 3.0]


def test_an_input_may_have_the_name_of_a_parameter():
    state = DeviceState.for_graph(graph_of(SameName(), torch.ones(2, 3)))

    assert state.parameters["weight"].shape == (3,)


@pytest.mark.parametrize("context", [torch.inference_mode, torch.no_grad])
def test_a_state_made_in_any_mode_can_be_trained(context):
    x = torch.ones(2, 4)
    with context():
        state = DeviceState.for_graph(graph_of(nn.Linear(4, 4), x, x, mode="training", loss=F.mse_loss))

    state.parameters["weight"].sum().backward()

    assert torch.equal(state.parameters["weight"].grad, torch.ones(4, 4))


def test_storages_are_those_of_everything_that_outlives_a_call():
    class WithConstant(Counting):
        def forward(self, x):
            return super().forward(x) * torch.tensor([1.0, 2.0, 3.0, 4.0])

    state = DeviceState.for_graph(graph_of(WithConstant(), torch.ones(2, 4)), replicas=2)

    expected = [*state.parameters.values(), *state.constants, *state.buffers[0].values(), *state.buffers[1].values()]
    assert state.collect_storages() == {tensor.untyped_storage().data_ptr() for tensor in expected}
    assert len(state.collect_storages()) == len(expected)


# -- parameters with a part for each group of replicas


def grouped_state(**groups):
    model, x = nn.Linear(2, 3), torch.ones(2, 2)
    graph = graph_of(model, x, torch.ones(2, 3), mode="training", loss=F.mse_loss)
    return DeviceState.for_graph(graph, replicas=4, groups={"weight": ReplicaGroups(4, 2, **groups)})


ROWS = torch.arange(12.0).reshape(2, 3, 2)


def test_each_group_has_a_part_of_its_own():
    state = grouped_state()

    assert list(state.parameters) == ["weight[0]", "weight[1]", "bias"]
    assert state.names == ["weight", "bias"]
    assert state.parameters["weight[0]"].shape == (3, 2)
    assert state.parameters["weight[1]"].requires_grad


@pytest.mark.parametrize(("strided", "groups"), [(False, [0, 0, 1, 1]), (True, [0, 1, 0, 1])])
def test_replicas_work_on_the_part_of_their_group(strided, groups):
    state = grouped_state(strided=strided)

    for replica, group in enumerate(groups):
        weight, bias = state.list_arguments(replica)
        assert weight is state.parameters[f"weight[{group}]"]
        assert bias is state.parameters["bias"]


def test_the_rows_of_the_host_are_dealt_out_to_the_parts():
    state = grouped_state()

    state.upload({"weight": ROWS, "bias": torch.ones(3)})

    assert torch.equal(state.parameters["weight[1]"], ROWS[1])
    assert torch.equal(state.read_value("weight"), ROWS)


def test_a_row_for_each_replica_is_taken_from_the_first_of_each_group():
    state = grouped_state(strided=True, returns_all=True)

    state.upload({"weight": torch.stack([ROWS[0], ROWS[1], ROWS[0] + 100, ROWS[1] + 100]), "bias": torch.ones(3)})

    assert torch.equal(state.read_value("weight"), ROWS[[0, 1, 0, 1]])


def test_download_joins_the_parts():
    state, host = grouped_state(), {"weight": torch.zeros(2, 3, 2), "bias": torch.zeros(3)}
    state.upload({"weight": ROWS, "bias": torch.ones(3)})

    state.download(host)

    assert torch.equal(host["weight"], ROWS)
    assert host["bias"].tolist() == [1.0, 1.0, 1.0]


def test_download_skips_what_the_host_does_not_have():
    state, host = grouped_state(), {"bias": torch.ones(3)}

    state.download(host)

    assert host["bias"].tolist() == [0.0, 0.0, 0.0]


def test_a_copy_for_another_order_of_memory_has_the_optimizers_state_in_it():
    plain = graph_of(nn.Conv2d(2, 3, 3), torch.ones(1, 2, 8, 8))
    state = DeviceState.for_graph(plain)
    moment = torch.randn(3, 2, 3, 3)
    state.slots = {"weight": {"Accl1": moment, "Step": torch.tensor(4.0)}}

    copied = state.copy_for(put_channels_last(plain))

    assert copied.slots["weight"]["Accl1"].stride() == copied.parameters["weight"].stride() == (18, 1, 6, 2)
    assert torch.equal(copied.slots["weight"]["Accl1"], moment)
    assert float(copied.slots["weight"]["Step"]) == 4.0
    back = copied.copy_for(plain)
    assert back.slots["weight"]["Accl1"].is_contiguous()
    assert torch.equal(back.slots["weight"]["Accl1"], moment)
