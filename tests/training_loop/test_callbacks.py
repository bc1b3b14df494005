"""Hooks run in Lightning's order, may stop the training, and their states are in the checkpoints."""

from __future__ import annotations

import pytest

from porting import fit
from porting.diagnostics import OptionError
from porting.training_loop import Callback
from porting.training_loop.callbacks import CallbackList
from tests.training_loop.small_training import make_loader, make_port

HOOKS = [name for name in vars(Callback) if name.startswith("on_")]


def make_recorder(seen):
    return type("Recorder", (), {name: lambda *_args, name=name: seen.append(name) for name in HOOKS})()


def test_hooks_run_in_this_order():
    seen = []
    ported, _optimizer = make_port()

    fit(ported, make_loader(6), 1, progress=False, validation=make_loader(6), callbacks=[make_recorder(seen)])

    assert seen == [
        "on_train_start",
        "on_train_epoch_start",
        "on_train_batch_start",
        "on_train_batch_end",
        "on_validation_start",
        "on_validation_batch_end",
        "on_validation_end",
        "on_train_epoch_end",
        "on_train_end",
    ]


def test_the_order_is_that_of_lightning():
    pl = pytest.importorskip("lightning.pytorch")
    from tests.training_loop.lightning_training import train_by_lightning

    ours, theirs = [], []
    ported, _optimizer = make_port()
    recorder = type(
        "Recorder",
        (pl.Callback,),
        {name: lambda *_args, name=name, **_named: theirs.append(name) for name in HOOKS},
    )()

    fit(ported, make_loader(12), 2, progress=False, validation=make_loader(6), callbacks=[make_recorder(ours)])
    train_by_lightning(make_loader(12), 2, validation=make_loader(6), callbacks=[recorder])

    assert ours == theirs


def test_a_hook_is_told_how_far_the_training_has_come():
    class Watcher(Callback):
        def on_train_batch_end(self, state, returned, batch, batch_index):
            seen.append((state.epoch, batch_index, state.num_steps, state.loss == returned[1].item()))

    seen = []
    ported, _optimizer = make_port()

    fit(ported, make_loader(12), 2, progress=False, callbacks=[Watcher()])

    assert seen == [(1, 0, 1, True), (1, 1, 2, True), (2, 0, 3, True), (2, 1, 4, True)]


def test_a_hook_may_stop_the_training():
    class Stopper:
        def on_train_epoch_end(self, state):
            state.should_stop = state.epoch == 2

    ported, _optimizer = make_port()

    history = fit(ported, make_loader(), 5, progress=False, callbacks=[Stopper()])

    assert len(history) == 2


def test_an_error_is_told_and_goes_on_its_way():
    class Failing:
        def on_train_batch_end(self, *_args):
            raise ValueError("on purpose")

        def on_exception(self, _state, exception):
            seen.append(exception)

    seen = []
    ported, _optimizer = make_port()

    with pytest.raises(ValueError, match="on purpose") as caught:
        fit(ported, make_loader(), 1, progress=False, callbacks=[Failing()])

    assert seen == [caught.value]


def test_a_state_is_a_part_of_the_checkpoints(tmp_path):
    class Counter:
        count = 0

        def on_train_epoch_end(self, _state):
            self.count += 1

        def state_dict(self):
            return {"count": self.count}

        def load_state_dict(self, state):
            self.count = state["count"]

    counter = Counter()
    fit(make_port()[0], make_loader(), 2, progress=False, checkpoint=tmp_path, callbacks=[Counter()])

    fit(make_port()[0], make_loader(), 3, progress=False, checkpoint=tmp_path, callbacks=[counter])

    assert counter.count == 3


def test_a_hook_that_fit_lacks_is_refused_with_the_nearest_name():
    class Misspelt:
        def on_train_epoch_ends(self, _state):
            pass

    with pytest.raises(OptionError, match="call it `on_train_epoch_end`"):
        CallbackList([Misspelt()])


@pytest.mark.parametrize("callback", [Callback, "a text", print], ids=str)
def test_what_is_no_callback_is_refused(callback):
    with pytest.raises(OptionError, match="P002"):
        CallbackList([callback])
