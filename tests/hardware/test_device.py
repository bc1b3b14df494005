"""A port on the device: compiled, attached, detached, in turns with others, and what its calls refuse."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings

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


def ported_net(make_optimizer=sgd, **settings):
    model = small_net()
    return model, port(model, nn.CrossEntropyLoss(), optimizer=make_optimizer(model), **settings)


def test_compiling_changes_neither_weights_nor_random_streams_and_happens_once():
    model = small_net(norm=True)
    ported = port(model, nn.CrossEntropyLoss(), optimizer=adam(model))
    x, y = one_batch()
    before = torch.get_rng_state()

    ported.compile(x, y)

    assert ported.compile(x, y) == 0.0
    assert torch.equal(before, torch.get_rng_state())
    assert_same_weights(model, small_net(norm=True))


def test_inference_and_evaluation_can_be_compiled_beforehand():
    _model, ported = ported_net()
    x, y = one_batch()

    ported.inference().compile(x)
    ported.eval()
    ported.compile(x, y)

    assert ported.compile(x, y) == 0.0


def test_inference_follows_training():
    model, ported = ported_net()
    infer = ported.inference()

    for x, y in batches(3):
        before = infer(x)
        ported(x, y)
        after = infer(x)
        assert not torch.equal(before, after)
        assert torch.allclose(after, model(x), atol=1e-5)


def test_one_ipu_is_enough_for_training_inference_and_evaluation(one_ipu):
    _model, ported = ported_net(adam)

    for x, y in batches(2):
        ported(x, y)
        ported.inference()(x)
        ported.eval()
        ported(x, y)
        ported.train()
    ported.detach()


def test_one_ipu_is_enough_for_ports_in_turns(one_ipu):
    x, y = one_batch()
    model, ported = ported_net(micro_batch=8, keep_gradients=True)
    ported(x, y)
    ported.inference()(x)
    ported(x, y)
    ported.destroy()

    other = port(model, nn.CrossEntropyLoss())
    other(x, y)
    port(nn.Sequential(model, nn.Linear(3, 3)), nn.CrossEntropyLoss())(x, y)
    other(x, y)


def test_optimizer_state_outlives_detach_and_destroy():
    data, twin = batches(6), small_net()
    expected = train_plainly(twin, adam(twin), data)
    model, ported = ported_net(adam)
    between = [ported.detach, lambda: (ported.detach(), ported.attach()), ported.destroy, ported.optimizer_state_dict]
    found = []

    for batch, act in zip(data, [*between, lambda: None, lambda: None]):
        found += train_ported(ported, [batch])
        act()

    assert found == equal(expected)
    assert_same_weights(model, twin)


def test_destroying_leaves_plain_parameters():
    model, ported = ported_net()
    ported(*one_batch())

    ported.destroy()

    assert type(model[0].weight) is nn.Parameter


def test_attaching_too_early_is_d004_and_too_late_d007():
    _model, ported = ported_net()

    assert_code("D004", ported.attach)
    ported(*one_batch())
    ported.destroy()
    assert_code("D007", ported.attach)


def test_a_model_can_be_ported_again_after_destroy_and_beside_another_port():
    model, first = ported_net()
    first(*one_batch())
    first.destroy()

    second = port(model, nn.CrossEntropyLoss(), optimizer=sgd(model))
    second(*one_batch())

    assert torch.isfinite(port(model, nn.CrossEntropyLoss(), optimizer=sgd(model))(*one_batch())[1])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["first first", "last first"])
def test_ports_of_one_model_can_be_destroyed_in_any_order(order):
    data, twin, model = batches(4), small_net(), small_net()
    expected = train_plainly(twin, sgd(twin), data)
    ports = [port(model, nn.CrossEntropyLoss(), optimizer=sgd(model)) for _number in range(2)]
    found = [loss for ported, batch in zip(ports, data) for loss in train_ported(ported, [batch])]

    ports[order[0]].destroy()
    found += train_ported(ports[order[1]], data[2:])
    ports[order[1]].destroy()

    assert found == equal(expected)
    assert_same_weights(model, twin)
    assert type(model[0].weight) is nn.Parameter


def test_a_port_that_is_dropped_leaves_what_it_trained():
    model, ported = ported_net()
    before = model[0].weight.detach().clone()
    ported(*one_batch())

    del ported
    gc.collect()

    assert not torch.equal(before, model[0].weight.detach())
    assert type(model[0].weight) is nn.Parameter


def test_a_model_on_the_device_pickles_and_copies():
    model, ported = ported_net()
    ported(*one_batch())

    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert_same_weights(other, model)


# -- what a call refuses ---------------------------------------------------------------------------------------------


def test_a_batch_unlike_the_first_has_a_code():
    _model, ported = ported_net()
    x, y = one_batch()

    assert_code("D006", lambda: ported(x))
    ported(x, y)
    assert_code("B001", lambda: ported(x[:4], y[:4]))
    assert_code("B002", lambda: ported(x.double(), y))


def test_a_batch_that_does_not_divide_is_b004():
    _model, ported = ported_net(accumulation=3)

    assert_code("B004", lambda: ported(*one_batch()))


def test_backward_and_a_step_with_a_closure_are_refused():
    model = small_net()
    optimizer = sgd(model)
    ported = port(model, nn.CrossEntropyLoss(), optimizer=optimizer)  # without it the optimizer is the plain loop's
    _output, loss = ported(*one_batch())

    assert_code("O007", loss.backward)
    assert_code("O004", lambda: optimizer.step(lambda: 0.0))


def test_a_step_of_the_loop_is_noticed():
    model = small_net()
    optimizer = sgd(model)
    ported = port(model, nn.CrossEntropyLoss(), optimizer=optimizer)
    ported(*one_batch())
    before = model[0].weight.detach().clone()

    with pytest.warns(UserWarning, match="O007"):
        optimizer.step()

    assert torch.equal(before, model[0].weight.detach())


def test_zero_grad_alone_warns_of_nothing_new_each_time():
    model = small_net()
    optimizer = sgd(model)
    ported = port(model, nn.CrossEntropyLoss(), optimizer=optimizer)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for batch in batches():
            optimizer.zero_grad()
            ported(*batch)

    assert len(said) <= 1


def test_moves_off_the_device_are_d003():
    _model, ported = ported_net()

    assert ported.to("ipu") is ported
    assert_code("D003", ported.cuda)
    assert_code("D003", ported.half)
    assert_code("D003", lambda: ported.to(torch.float64))


def test_a_port_can_be_shown_and_moved_to_the_host():
    _model, ported = ported_net()
    ported(*one_batch())

    assert "IPU" in str(ported.report())
    assert repr(ported)
    assert ported.to("cpu") is ported


def test_a_port_is_used_as_a_module_is():
    model, ported = ported_net()
    seen = []

    ported.apply(lambda module: seen.append(module))
    ported(*one_batch())
    ported.copy_weights_to_host()
    ported.copy_weights_to_device()

    assert model in seen
    assert [name for name, _parameter in ported.named_parameters()] == [name for name, _ in model.named_parameters()]
    assert ported.train().training


# -- modes of torch --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_a_mode_without_gradients_is_no_hindrance(mode):
    _model, ported = ported_net()

    with mode():
        output = ported.inference()(one_batch()[0])
    with torch.no_grad():
        _output, loss = ported(*one_batch())

    assert torch.isfinite(output).all()
    assert torch.isfinite(loss)
