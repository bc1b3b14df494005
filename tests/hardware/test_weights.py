"""Weights and optimizer state on the hardware path: saved, loaded, written on the host, carried there and back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.hardware.side_by_side import (
    adam,
    assert_code,
    assert_same_weights,
    batches,
    equal,
    one_batch,
    port,
    sgd,
    small_net,
    train_plainly,
    train_ported,
)


@pytest.fixture
def trained():
    """Give a port that has trained a step."""
    model = small_net()
    ported = port(model, nn.CrossEntropyLoss(), optimizer=sgd(model))
    ported(*one_batch())
    return ported


def test_the_state_is_plain_tensors(trained):
    assert {type(value) for value in trained.state_dict().values()} == {torch.Tensor}


def test_a_saved_state_reaches_the_device_again(trained, tmp_path):
    x, y = one_batch()
    torch.save(trained.state_dict(), tmp_path / "a.pt")
    train_ported(trained, [(x, y)] * 3)

    trained.load_state_dict(str(tmp_path / "a.pt"))

    plain = small_net()
    plain.load_state_dict(torch.load(tmp_path / "a.pt"))
    assert torch.allclose(trained.inference()(x), plain(x), atol=1e-6)


def test_a_damaged_file_is_k001_and_foreign_names_are_k002(trained, tmp_path):
    (tmp_path / "b.pt").write_bytes(b"nothing")

    assert_code("K001", lambda: trained.load_state_dict(str(tmp_path / "b.pt")))
    assert_code("K002", lambda: trained.load_state_dict({"wrong": torch.zeros(1)}))


def test_weights_written_on_the_host_reach_the_device():
    model = small_net()
    ported = port(model, nn.CrossEntropyLoss(), optimizer=torch.optim.SGD(model.parameters(), lr=0.0))
    (first,) = train_ported(ported, [one_batch()])

    with torch.no_grad():
        model[2].weight.zero_()
        model[2].bias.zero_()
    (second,) = train_ported(ported, [one_batch()])

    of_three_equal_classes = 1.0986
    assert second == pytest.approx(of_three_equal_classes, abs=1e-3) != first


def test_looking_at_weights_costs_no_upload(trained, stand_in):
    before = stand_in.CALLS["copyWeightsToDevice"]

    for _step in range(3):
        assert torch.isfinite(trained.state_dict()["0.weight"]).all()
        assert all(torch.isfinite(parameter).all() for parameter in trained.parameters())
        trained(*one_batch())

    assert stand_in.CALLS["copyWeightsToDevice"] == before


# -- state of the optimizer ------------------------------------------------------------------------------------------


def test_the_state_of_an_optimizer_is_carried_to_the_device_and_back():
    data, twin, model = batches(6), small_net(), small_net()
    expected = train_plainly(twin, adam(twin), data)
    optimizer = adam(model)

    found = train_plainly(model, optimizer, data[:2])
    ported = port(model, nn.CrossEntropyLoss(), optimizer=optimizer)
    found += train_ported(ported, data[2:4])
    state = ported.optimizer_state_dict()
    ported.destroy()
    optimizer.load_state_dict(state)
    found += train_plainly(model, optimizer, data[4:])

    assert found == equal(expected)
    assert_same_weights(model, twin)


def test_the_state_of_the_torch_optimizer_is_the_devices():
    data, twin, model = batches(4), small_net(), small_net()
    expected = train_plainly(twin, adam(twin), data)
    optimizer = adam(model)
    ported = port(model, nn.CrossEntropyLoss(), optimizer=optimizer)
    found = train_ported(ported, data[:2])

    saved = optimizer.state_dict()

    assert saved["state"]
    ported.destroy()
    other = adam(model)
    other.load_state_dict(saved)
    assert found + train_plainly(model, other, data[2:]) == equal(expected)


def test_a_state_loaded_into_the_torch_optimizer_reaches_the_device():
    data, twin, model = batches(4), small_net(), small_net()
    of_twin, optimizer = adam(twin), adam(model)
    train_plainly(twin, of_twin, data[:2])
    model.load_state_dict(twin.state_dict())
    ported = port(model, nn.CrossEntropyLoss(), optimizer=optimizer)
    ported.compile(*data[0])

    optimizer.load_state_dict(of_twin.state_dict())

    assert train_ported(ported, data[2:]) == equal(train_plainly(twin, of_twin, data[2:]))
    assert_same_weights(model, twin)
