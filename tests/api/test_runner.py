from __future__ import annotations

import copy
import re
import traceback

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting import PortOptions, to_ipu
from porting.api import call_notes
from porting.diagnostics import BatchError, CaptureError, DeviceError


def is_plain(model):
    """Tell whether a model and its tensors are of the classes that they were made with."""
    tensors = [*model.parameters(), *model.buffers()]
    return type(model) is nn.Sequential and {type(tensor) for tensor in tensors} <= {nn.Parameter, torch.Tensor}


class Breakable(nn.Module):
    """Raises an error in `forward` as long as it has one."""

    def __init__(self, error=None) -> None:
        super().__init__()
        self.body = nn.Linear(4, 3, bias=False)
        self.error = error

    def forward(self, x):
        if self.error is not None:
            raise self.error
        return self.body(x)


# -- compiling --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make_optimizer",
    [
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        lambda parameters: torch.optim.Adam(parameters, lr=0.1),
    ],
    ids=["SGD", "Adam"],
)
def test_compiling_changes_no_weight_no_buffer_no_state_and_no_generator(make_optimizer, make_model, batches):
    model = make_model().append(nn.Dropout())
    optimizer = make_optimizer(model.parameters())
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    generator = torch.get_rng_state()

    ported.compile(*batches[0])

    assert torch.equal(torch.get_rng_state(), generator)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(not tensor.any() for tensor in ported.optimizer.state_dict()["ipu_state"].values())
    assert ported.report().num_training_calls == 0


def test_training_after_compiling_is_training_without_it(make_model, batches, train_ported, same):
    def port():
        model = make_model()
        return to_ipu(model, nn.CrossEntropyLoss(), optimizer=torch.optim.Adam(model.parameters()))

    expected = train_ported(port(), batches)
    ported = port()

    ported.compile(*batches[7])

    same(train_ported(ported, batches), expected)


def test_compiling_returns_its_seconds_and_a_second_time_nothing_is_done(make_model, batches):
    ported = to_ipu(make_model(), nn.CrossEntropyLoss())

    first, second = ported.compile(*batches[0]), ported.compile(*batches[1])

    assert first > 0.0
    assert second == 0.0
    assert ported.report().executors[0].num_compilations == 1


def test_compiling_for_another_batch_needs_the_old_executable_destroyed(make_model, batches):
    ported = to_ipu(make_model(), nn.CrossEntropyLoss())
    ported.compile(*batches[0])
    x, y = batches[0]

    with pytest.raises(BatchError) as caught:
        ported.compile(x[:3], y[:3])
    ported.destroy()
    ported.compile(x[:3], y[:3])

    assert caught.value.code == "B001"
    assert any("ported.destroy()" in line for line in caught.value.finding.help)


def test_a_traceback_shows_a_finding_once(batches):
    class Gate(nn.Linear):
        def forward(self, x):
            return x if x.mean() > 0 else -x

    with pytest.raises(CaptureError) as caught:
        to_ipu(Gate(2, 2), nn.CrossEntropyLoss())(*batches[0])

    shown = "".join(traceback.format_exception(type(caught.value), caught.value, caught.tb))
    assert shown.count("error[C001]") == 1


def test_a_first_call_that_compiles_for_long_says_what_it_cost(make_model, batches, caplog, monkeypatch):
    monkeypatch.setattr(call_notes, "_LONG_SECONDS", 0.0)
    ported = to_ipu(make_model(), nn.CrossEntropyLoss())

    ported(*batches[0])
    ported(*batches[1])

    notices = [record.message for record in caplog.records if "compiled" in record.message]
    assert len(notices) == 1
    assert re.fullmatch(
        r"the training graph was compiled in \d+\.\d\d s within its first call \(`ported\.compile\(\*batch\)` does it "
        r"beforehand\)",
        notices[0],
    )


def test_a_first_call_that_takes_no_time_says_nothing(make_model, batches, caplog, capsys):
    to_ipu(make_model(), nn.CrossEntropyLoss(), device="sim")(*batches[0])

    assert "within its first call" not in caplog.text
    assert capsys.readouterr() == ("", "")


def test_a_call_after_compiling_says_nothing(make_model, batches, caplog, monkeypatch):
    monkeypatch.setattr(call_notes, "_LONG_SECONDS", 0.0)
    ported = to_ipu(make_model(), nn.CrossEntropyLoss())
    ported.compile(*batches[0])

    ported(*batches[0])

    assert "within its first call" not in caplog.text


# -- failures ---------------------------------------------------------------------------------------------------------


def test_an_error_of_forward_comes_through_as_it_is_and_leaves_the_model_plain(batches):
    model = Breakable(ZeroDivisionError("from forward"))
    ported = to_ipu(model, nn.CrossEntropyLoss())

    with pytest.raises(ZeroDivisionError, match="from forward"):
        ported(*batches[0])

    assert type(model.body.weight) is nn.Parameter
    assert type(model.body) is nn.Linear


def test_after_a_failed_compilation_the_model_trains_on_the_host(batches, train_plainly):
    model = Breakable(ZeroDivisionError())
    ported = to_ipu(model, nn.CrossEntropyLoss())
    with pytest.raises(ZeroDivisionError):
        ported(*batches[0])
    model.error = None

    losses = train_plainly(model, torch.optim.SGD(model.parameters(), lr=0.1), batches)

    assert losses[-1] != losses[0]


@pytest.mark.parametrize("error", [ZeroDivisionError(), KeyboardInterrupt()], ids=["an error", "Ctrl-C"])
def test_after_a_failed_compilation_the_same_ported_model_trains(error, batches, train_plainly, train_ported, same):
    torch.manual_seed(0)
    plain = Breakable()
    expected = train_plainly(plain, torch.optim.Adam(plain.parameters()), batches)
    torch.manual_seed(0)
    model = Breakable(error)
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=torch.optim.Adam(model.parameters()))

    with pytest.raises(type(error)):
        ported(*batches[0])
    model.error = None

    same(train_ported(ported, batches), expected)


def test_after_a_failed_compilation_the_model_can_be_ported_again(batches, train_ported):
    model = Breakable(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        to_ipu(model, nn.CrossEntropyLoss(), example=batches[0])
    model.error = None

    again = to_ipu(model, nn.CrossEntropyLoss(), example=batches[0])

    assert len(train_ported(again, batches[:2])) == 2


def test_an_interrupt_between_calls_and_compilations_keeps_the_optimizers_state(
    make_model, batches, train_plainly, train_ported, same
):
    plain, model = Breakable(), Breakable()
    model.load_state_dict(plain.state_dict())
    expected = train_plainly(plain, torch.optim.Adam(plain.parameters(), lr=0.05), batches)
    optimizer, options = torch.optim.Adam(model.parameters(), lr=0.05), PortOptions(frozen=["error"])
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, options=options)
    losses = train_ported(ported, batches[:8])

    ported.destroy()
    model.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        ported(*batches[8])
    model.error = None

    same(losses + train_ported(ported, batches[8:]), expected)


def test_an_interrupt_in_the_middle_of_a_call_leaves_no_gradient_behind(batches, train_ported, same, monkeypatch):
    model = Breakable()
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    ported.compile(*batches[0])
    weights = ported.state_dict()
    expected = train_ported(ported, batches)
    ported.load_state_dict(weights)

    def interrupted(*_args, **_kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        # between the backward pass and the update
        patch.setattr("porting.engines.replay.replay.apply_update", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ported(*batches[0])

    same(train_ported(ported, batches), expected)


def test_an_inference_that_fails_to_compile_leaves_training_its_hold_on_the_weights(
    make_model, batches, train_plainly, train_ported, same
):
    plain, model = make_model(), make_model()
    train_plainly(plain, torch.optim.SGD(plain.parameters(), lr=0.1), batches)
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    train_ported(ported, batches[:5])

    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        ported.inference()(torch.randn(6, 5))
    train_ported(ported, batches[5:])

    same(dict(model.state_dict()), dict(plain.state_dict()))


def test_a_copy_of_a_ported_model_is_ported_beside_it(make_model, batches, train_plainly, train_ported, same):
    plain = make_model()
    losses = train_plainly(plain, torch.optim.SGD(plain.parameters(), lr=0.1), batches)
    ported = to_ipu(make_model(), nn.CrossEntropyLoss(), optimizer=None)
    ported(*batches[0])

    copied = copy.deepcopy(ported.model)
    copied.load_state_dict(make_model().state_dict())
    other = to_ipu(copied, nn.CrossEntropyLoss(), optimizer=torch.optim.SGD(copied.parameters(), lr=0.1))
    before = ported.state_dict()

    same(train_ported(other, batches), losses)
    same(ported.state_dict(), before)


def test_wrong_shapes_in_forward_raise_what_torch_raises(make_model):
    ported = to_ipu(make_model(), nn.CrossEntropyLoss())

    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        ported(torch.randn(6, 5), torch.zeros(6, dtype=torch.int64))


def test_a_forward_that_reads_a_value_is_a_finding_at_its_line():
    class Gate(nn.Linear):
        def forward(self, x):
            h = super().forward(x)
            return h if h.mean() > 0 else -h

    ported = to_ipu(Gate(4, 3), nn.CrossEntropyLoss())

    with pytest.raises(CaptureError) as caught:
        ported(torch.randn(6, 4), torch.zeros(6, dtype=torch.int64))

    assert caught.value.code == "C001"
    assert caught.value.finding.place.file == __file__


# -- the life of an executable ----------------------------------------------------------------------------------------


def test_destroying_leaves_a_plain_model_with_the_trained_weights(
    make_model, batches, train_plainly, train_ported, same
):
    plain, model = make_model(), make_model()
    train_plainly(plain, torch.optim.SGD(plain.parameters(), lr=0.1), batches)
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    train_ported(ported, batches)

    ported.destroy()

    same(dict(model.state_dict()), dict(plain.state_dict()))
    assert is_plain(model)


def test_training_continues_after_destroy_as_if_uninterrupted(make_model, batches, train_plainly, train_ported, same):
    plain, model = make_model(), make_model()
    expected = train_plainly(plain, torch.optim.Adam(plain.parameters(), lr=0.01), batches)
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=torch.optim.Adam(model.parameters(), lr=0.01))
    losses = train_ported(ported, batches[:10])

    ported.destroy()

    same(losses + train_ported(ported, batches[10:]), expected)


def test_training_continues_after_detach_and_attach_as_if_uninterrupted(
    make_model, batches, train_plainly, train_ported, same
):
    plain, model = make_model(), make_model()
    expected = train_plainly(plain, torch.optim.Adam(plain.parameters(), lr=0.01), batches)
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=torch.optim.Adam(model.parameters(), lr=0.01))

    losses = train_ported(ported, batches[:5])
    ported.detach()
    losses += train_ported(ported, batches[5:10])
    losses += train_ported(ported.detach().attach(), batches[10:])

    same(losses, expected)


def test_weights_changed_between_detach_and_attach_are_used(make_model, batches, same):
    ported = to_ipu(make_model(), nn.CrossEntropyLoss())
    ported(*batches[0])
    ported.detach()

    ported.model.load_state_dict(make_model(seed=3).state_dict())
    _, loss = ported(*batches[1])

    x, y = batches[1]
    same(loss, F.cross_entropy(make_model(seed=3)(x), y).detach())


def test_detaching_twice_or_before_anything_ran_does_no_harm(make_model, batches):
    ported = to_ipu(make_model(), nn.CrossEntropyLoss())

    assert ported.detach() is ported
    ported(*batches[0])
    assert ported.detach().detach() is ported


def test_attaching_what_was_never_compiled_is_an_error(make_model):
    ported = to_ipu(make_model(), nn.CrossEntropyLoss())

    with pytest.raises(DeviceError, match="D004"):
        ported.attach()


def test_attaching_what_was_destroyed_is_an_error(make_model, batches):
    ported = to_ipu(make_model(), nn.CrossEntropyLoss())
    ported(*batches[0])
    ported.destroy()

    with pytest.raises(DeviceError, match="D007"):
        ported.attach()


def test_destroying_twice_or_before_anything_ran_does_no_harm(make_model, batches):
    ported = to_ipu(make_model(), nn.CrossEntropyLoss())

    ported.destroy()
    ported(*batches[0])
    ported.destroy()
    ported.destroy()

    assert is_plain(ported.model)


def test_a_ported_model_that_nobody_keeps_leaves_what_it_learnt(make_model, batches, train_plainly, train_ported, same):
    plain, model = make_model(), make_model()
    train_plainly(plain, torch.optim.SGD(plain.parameters(), lr=0.1), batches)

    train_ported(to_ipu(model, nn.CrossEntropyLoss(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1)), batches)

    same(dict(model.state_dict()), dict(plain.state_dict()))
    assert is_plain(model)


def test_a_ported_model_can_go_while_another_one_is_captured(make_model, batches, train_plainly, same):
    plain, model = make_model(), make_model()
    train_plainly(plain, torch.optim.SGD(plain.parameters(), lr=0.1), batches[:1])
    doomed = {"port": to_ipu(model, nn.CrossEntropyLoss(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1))}
    doomed["port"](*batches[0])

    class Collecting(nn.Linear):
        def forward(self, x):
            doomed.clear()
            return super().forward(x)

    with torch.device("meta"):
        to_ipu(Collecting(4, 3, device="cpu"), nn.CrossEntropyLoss()).compile(*batches[0])

    same(dict(model.state_dict()), dict(plain.state_dict()))
    assert is_plain(model)
