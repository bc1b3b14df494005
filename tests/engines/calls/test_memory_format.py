"""Channels innermost: the same values, another order in memory, and a reason where that cannot be promised."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from porting.capture import capture_step
from porting.engines.calls.call_plan import CallPlan
from porting.engines.calls.device_state import DeviceState
from porting.engines.calls.memory_format import LayoutError, put_channels_last
from porting.engines.replay.replay import ReplayExecutable
from porting.host_tensors import host_tensors

IMAGES = torch.linspace(-1, 1, 4 * 3 * 8 * 8).reshape(4, 3, 8, 8)
LABELS = torch.tensor([0, 1, 2, 1])


class Pooled(nn.Module):
    """A small network over images whose features are flattened by `flatten`."""

    def __init__(self, flatten, *, between=None):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.between = nn.ReLU() if between is None else between
        self.last = nn.Linear(8 * 16, 3)
        self.flatten = flatten

    def forward(self, images):
        features = self.between(self.norm(self.conv(images)))
        return self.last(self.flatten(nn.functional.max_pool2d(features, 2)))


class Applied(nn.Module):
    """A function as a layer."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def captured(model, *example, mode="training", **settings):
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.1)
    return capture_step(model, example, mode=mode, **settings)


def run(graph, model, inputs, settings=None, **plan):
    """Run two calls from the model's weights; return the last results and the state."""
    state = DeviceState.for_graph(graph)
    state.upload({host.name: host.tensor.detach() for host in host_tensors(model)})
    state.rng_state = torch.Generator().manual_seed(3).get_state()
    executable = ReplayExecutable(graph)
    for _ in range(2):
        results = executable.run(
            state,
            inputs,
            CallPlan(**plan),
            groups=() if settings is None else [settings],
            group_names=() if settings is None else [[info.name for info in graph.parameters]],
        )
    return results, state


def assert_same_step(model, settings, **plan):
    graph = captured(model, IMAGES, LABELS, loss=nn.functional.cross_entropy)
    inputs = [IMAGES, LABELS.int()]

    expected, plain = run(graph, model, inputs, settings, **plan)
    found, other = run(put_channels_last(graph), model, inputs, settings, **plan)

    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(other.parameters, plain.parameters)
    torch.testing.assert_close(other.buffers, plain.buffers)


@pytest.mark.parametrize(
    "flatten",
    [
        lambda x: x.flatten(1),
        lambda x: x.view(x.shape[0], -1),
        lambda x: x.reshape(x.shape[0], -1),
        lambda x: x.contiguous().view(x.shape[0], -1),
        lambda x: torch.as_strided(x, (x.shape[0], 128), (128, 1)),
        lambda x: x.view(torch.int32).view(torch.float32).flatten(1),
    ],
    ids=["flatten", "view", "reshape", "contiguous", "as_strided", "type"],
)
def test_a_network_over_images_trains_alike(flatten, settings):
    assert_same_step(Pooled(flatten), settings(momentum=0.9))


def test_dropout_drops_the_same_elements(settings):
    assert_same_step(Pooled(lambda x: x.flatten(1), between=nn.Dropout()), settings())


def test_layers_that_work_in_place_train_alike(settings):
    assert_same_step(Pooled(lambda x: x.flatten(1), between=nn.ReLU(inplace=True)), settings("ADAM", eps=1e-3))


def test_values_of_several_results_are_moved_one_by_one(settings):
    pool = Applied(lambda x: sum(nn.functional.max_pool2d_with_indices(x, 2)[:1]))
    model = nn.Sequential(nn.Conv2d(3, 8, 3), pool, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))

    assert_same_step(model, settings(momentum=0.9))


@pytest.mark.parametrize(
    "pool",
    [
        nn.AdaptiveAvgPool2d(1),
        lambda x: x.mean((2, 3)),
        lambda x: x.mean((-1, -2), keepdim=True),
    ],
    ids=["average", "mean", "kept"],
)
def test_what_works_in_place_on_pooled_images_trains_alike(pool, settings):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), Applied(pool), nn.Flatten(), nn.Dropout(inplace=True), nn.Linear(8, 3))

    assert_same_step(model, settings(momentum=0.9))


@pytest.mark.parametrize("dims", [(0, 3), (1, 2), (3,)])
def test_means_over_other_dimensions_are_no_pooled_images(dims, settings):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), Applied(lambda x: x.mean(dims).reshape(-1, 24)), nn.Linear(24, 3))
    graph = captured(model, IMAGES, mode="inference")

    torch.testing.assert_close(run(put_channels_last(graph), model, [IMAGES])[0], run(graph, model, [IMAGES])[0])


def test_accumulation_is_alike(settings):
    model = nn.Sequential(nn.Conv2d(3, 3, 8), nn.Flatten())
    graph = captured(model, IMAGES[:2], LABELS[:2], loss=nn.functional.cross_entropy)
    inputs = [IMAGES, LABELS.int()]

    expected, plain = run(graph, model, inputs, settings(), accumulation=2)
    found, other = run(put_channels_last(graph), model, inputs, settings(), accumulation=2)

    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(other.parameters, plain.parameters)


def test_weights_lie_with_their_channels_innermost_and_so_does_the_optimizers_state(settings):
    model = Pooled(lambda x: x.flatten(1))
    graph = put_channels_last(captured(model, IMAGES, LABELS, loss=nn.functional.cross_entropy))

    _results, state = run(graph, model, [IMAGES, LABELS.int()], settings(momentum=0.9))

    assert state.parameters["conv.weight"].is_contiguous(memory_format=torch.channels_last)
    assert state.slots["conv.weight"]["Accl1"].is_contiguous(memory_format=torch.channels_last)
    assert state.parameters["last.weight"].is_contiguous()


def test_volumes_have_their_channels_innermost_too():
    model = nn.Conv3d(2, 3, 3)
    volumes = torch.ones(1, 2, 4, 4, 4)
    graph = put_channels_last(captured(model, volumes, mode="inference"))

    results, state = run(graph, model, [volumes])

    assert state.parameters["weight"].is_contiguous(memory_format=torch.channels_last_3d)
    torch.testing.assert_close(results[0], model(volumes).detach())


@pytest.mark.parametrize("kind", [nn.Conv2d, nn.Conv3d])
@pytest.mark.parametrize(("channels", "groups"), [(1, 1), (3, 1), (4, 4)])
@pytest.mark.parametrize("window", [1, 3])
def test_a_program_is_compiled_for_the_memory_that_the_state_has(kind, channels, groups, window):
    size = (5,) * (2 if kind is nn.Conv2d else 3)
    model = nn.Sequential(kind(channels, 4, window, groups=groups), kind(4, 2, 3))
    graph = put_channels_last(captured(model, torch.ones(1, channels, *size), mode="inference"))

    state = DeviceState.for_graph(graph)
    with FakeTensorMode():
        compiled_for = DeviceState.for_graph(graph)

    assert [tensor.stride() for tensor in state.parameters.values()] == [
        tensor.stride() for tensor in compiled_for.parameters.values()
    ]


def test_volumes_whose_weights_lie_alike_in_both_orders_are_put_in_order_themselves():
    model = nn.Sequential(nn.Conv3d(4, 4, 3, groups=4), nn.Conv3d(4, 2, 1))
    volumes = torch.linspace(-1, 1, 4 * 5**3).reshape(1, 4, 5, 5, 5)
    graph = put_channels_last(captured(model, volumes, mode="inference"))

    results, _state = run(graph, model, [volumes])

    assert any(node.kwargs.get("memory_format") is torch.channels_last_3d for node in graph.graph.nodes)
    torch.testing.assert_close(results[0], model(volumes).detach())


def test_results_lie_in_the_ordinary_order():
    model = nn.Conv2d(3, 4, 3)
    graph = put_channels_last(captured(model, IMAGES, mode="inference"))

    results, _state = run(graph, model, [IMAGES])

    assert results[0].is_contiguous()


def test_the_host_gets_its_own_layout_back(settings):
    model = Pooled(lambda x: x.flatten(1))
    graph = put_channels_last(captured(model, IMAGES, LABELS, loss=nn.functional.cross_entropy))
    _results, state = run(graph, model, [IMAGES, LABELS.int()], settings())
    hosts = {host.name: host.tensor for host in host_tensors(model)}

    state.download(hosts)

    assert model.conv.weight.is_contiguous()
    assert torch.equal(model.conv.weight, state.parameters["conv.weight"])


def written_through_a_view(images, conv):
    features = conv(images)
    features.view(features.shape[0], -1).mul_(2.0)
    return features


def written_after_a_reshape(images, conv):
    features = conv(images)
    flat = features.flatten(1)
    features.add_(1.0)
    return flat


def written_at_random(images, conv):
    features = conv(images)
    return nn.functional.dropout(features, 0.5, True, inplace=True)


@pytest.mark.parametrize("forward", [written_through_a_view, written_after_a_reshape, written_at_random])
def test_what_could_change_is_refused_with_a_reason(forward):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, images):
            return forward(images, self.conv)

    graph = captured(Model(), IMAGES, mode="inference")

    with pytest.raises(LayoutError, match="written to later|in the order of the memory"):
        put_channels_last(graph)


def test_a_graph_without_convolutions_has_nothing_to_move():
    graph = captured(nn.Linear(4, 2), torch.ones(3, 4), mode="inference")

    with pytest.raises(LayoutError, match="no convolution"):
        put_channels_last(graph)


def test_the_graph_itself_stays_as_it_was():
    graph = captured(nn.Conv2d(3, 4, 3), IMAGES, mode="inference")
    before = str(graph)

    put_channels_last(graph)

    assert str(graph) == before
    assert graph.placeholders[0].meta["val"].is_contiguous()


def test_a_weight_that_is_cast_for_its_convolution_has_its_channels_innermost_too():
    graph = captured(Pooled(nn.Flatten()), IMAGES, mode="inference", autocast=torch.bfloat16)

    (weight,) = [node for node in put_channels_last(graph).placeholders if node.name == "conv_weight"]
    assert weight.meta["val"].is_contiguous(memory_format=torch.channels_last)


def test_a_network_in_bfloat16_computes_alike():
    model = Pooled(nn.Flatten())
    graph = captured(model, IMAGES, mode="inference", autocast=torch.bfloat16)

    (expected,), _state = run(graph, model, [IMAGES])
    (found,), _state = run(put_channels_last(graph), model, [IMAGES])

    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)
