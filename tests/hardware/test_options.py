"""PortOptions on the hardware path: batches in parts, precision, seeds, gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.hardware.side_by_side import (
    adam,
    assert_code,
    batches,
    one_batch,
    port,
    sgd,
    small_net,
    train_in_parts_like_plain,
    train_ported,
)


@pytest.mark.parametrize(
    "settings",
    [
        {"micro_batch": 4, "accumulation": 2},
        {"micro_batch": 4, "replicas": 2},
        {"micro_batch": 4, "device_iterations": 3},
        {"micro_batch": 2, "accumulation": 2, "replicas": 2, "device_iterations": 2},
        {"micro_batch": 4, "accumulation": 2, "recompute": ["0"]},
        {"micro_batch": 4, "available_memory": 0.3, "half_partials": True, "optimizer_state": "off_chip"},
        {"micro_batch": 4, "replicas": 2, "optimizer_state": "off_chip", "shard_optimizer_state": True},
        {"micro_batch": 4, "serialize": {"0": 2}},
    ],
    ids=str,
)
def test_a_batch_in_parts_trains_like_a_whole_one(settings):
    train_in_parts_like_plain(**settings)


@pytest.mark.parametrize(
    ("settings", "num_rows"),
    [
        ({}, 4),
        ({"output_mode": "final"}, 4),
        ({"output_mode": "all"}, 24),
        ({"output_mode": "sum"}, 2),
        ({"output_mode": "every_n", "output_every": 2}, 12),
    ],
    ids=["default", "final", "all", "sum", "every_n"],
)
def test_an_output_mode_chooses_what_a_call_returns(settings, num_rows):
    ported, returned = train_in_parts_like_plain(
        micro_batch=2, accumulation=2, replicas=2, device_iterations=3, **settings
    )

    assert len(returned[0][0]) == num_rows
    assert len(ported.inference()(torch.randn(12, 4))) == 12


def test_a_sum_as_reduction_trains_with_more_than_a_mean():
    def movement(reduction):
        model = small_net()
        ported = port(
            model, nn.CrossEntropyLoss(), optimizer=sgd(model), micro_batch=4, accumulation=2, reduction=reduction
        )
        ported(*one_batch())
        return model[0].weight.detach() - small_net()[0].weight.detach()

    assert torch.allclose(movement("sum"), 2 * movement("mean"), atol=1e-6)


class Counting(nn.Linear):
    """Writes into a buffer."""

    def __init__(self):
        super().__init__(4, 3)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count.add_(1.0)
        return super().forward(x)


def test_buffers_that_forward_writes_in_replicas_are_p002():
    assert_code("P002", lambda: port(Counting(), nn.CrossEntropyLoss(), micro_batch=4, replicas=2)(*one_batch()))


@pytest.mark.parametrize("make", [Counting, lambda: small_net(norm=True)], ids=["written", "BatchNorm"])
def test_replicas_may_have_buffers_of_their_own(make):
    ported = port(make(), nn.CrossEntropyLoss(), micro_batch=4, replicas=2, broadcast_buffers=False)

    assert torch.isfinite(ported(*one_batch())[1]).all()


def test_settings_of_the_simulator_are_refused_unless_they_are_harmless():
    port(small_net(), nn.CrossEntropyLoss(), engine="auto")

    assert_code("P004", lambda: port(small_net(), nn.CrossEntropyLoss(), engine="aot"))
    assert_code("P002", lambda: port(small_net(), nn.CrossEntropyLoss(), computation_order="chen"))


def test_an_executable_in_the_cache_is_a_hit(tmp_path):
    told = []

    for _start in range(2):
        ported = port(small_net(), nn.CrossEntropyLoss(), cache_dir=str(tmp_path / "cache"))
        ported(*one_batch())
        told.append(str(ported.report()))
        ported.destroy()

    assert "miss" in told[0]
    assert "hit" in told[1]


# -- precision -------------------------------------------------------------------------------------------------------


def test_float16_has_half_weights_and_a_float32_loss_and_trains():
    model = small_net()
    with pytest.warns(UserWarning, match="P003"):  # the weights were converted
        ported = port(model, nn.CrossEntropyLoss(), optimizer=sgd(model), precision="float16")
    output, first = ported(*one_batch())

    losses = train_ported(ported, [one_batch()] * 5)

    assert (output.dtype, first.dtype, model[0].weight.dtype) == (torch.float16, torch.float32, torch.float16)
    assert losses[-1] < first
    assert ported.inference()(one_batch()[0]).dtype == torch.float16


def test_mixed_precision_keeps_float32_weights_and_gives_float16_from_a_linear():
    model = small_net()
    output, _loss = port(model, nn.CrossEntropyLoss(), optimizer=sgd(model), precision="mixed")(*one_batch())

    assert model[0].weight.dtype == torch.float32
    assert output.dtype == torch.float16


def test_mixed_precision_gives_a_convolution_operands_of_one_type(stand_in):
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3))
    stand_in.WARNINGS.clear()

    port(model, nn.CrossEntropyLoss(), precision="mixed")(torch.randn(8, 1, 4, 4), torch.zeros(8, dtype=torch.int64))

    assert stand_in.WARNINGS == []


def test_mixed_precision_trains():
    model = small_net()
    losses = train_ported(
        port(model, nn.CrossEntropyLoss(), optimizer=sgd(model), precision="mixed"), [one_batch()] * 5
    )

    assert losses[-1] < losses[0]


def test_bfloat16_is_p001():
    assert_code("P001", lambda: port(small_net(), nn.CrossEntropyLoss(), precision="bfloat16"))


# -- seeds -----------------------------------------------------------------------------------------------------------


def test_a_seed_leaves_the_hosts_generator_alone():
    model = small_net()
    before = torch.get_rng_state()

    port(model, nn.CrossEntropyLoss(), seed=2**63)

    assert torch.equal(before, torch.get_rng_state())


def test_the_largest_seed_is_one_that_poptorch_takes():
    assert len(train_ported(port(small_net(), nn.CrossEntropyLoss(), seed=2**64 - 1), batches())) == 4


# -- gradients -------------------------------------------------------------------------------------------------------


def test_kept_gradients_are_those_of_plain_pytorch():
    model, twin = small_net(), small_net()
    settings = {"micro_batch": 4, "accumulation": 2, "keep_gradients": True, "output_mode": "all"}
    ported = port(model, nn.CrossEntropyLoss(), optimizer=sgd(model), **settings)
    x, y = one_batch()

    ported(x, y)

    nn.functional.cross_entropy(twin(x), y).backward()
    found, expected = ported.gradients(), {name: parameter.grad for name, parameter in twin.named_parameters()}
    assert sorted(found) == sorted(expected)
    assert [name for name in expected if not torch.allclose(found[name], expected[name], atol=1e-6)] == []


def test_gradients_are_kept_in_the_default_output_mode():
    model = small_net()
    ported = port(model, nn.CrossEntropyLoss(), optimizer=adam(model), micro_batch=8, keep_gradients=True)

    train_ported(ported, batches(2))

    assert sorted(ported.gradients()) == ["0.bias", "0.weight", "2.bias", "2.weight"]
