from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from porting import PortOptions, fit, to_ipu
from porting.diagnostics import OptionError


@pytest.fixture
def samples():
    torch.manual_seed(0)
    return TensorDataset(torch.randn(24, 4), torch.randint(3, (24,)))


def make_model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def port(model, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, options=PortOptions(**options))


def test_the_mean_loss_of_each_epoch_is_that_of_plain_pytorch(samples):
    plain = make_model()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    expected = []
    for _epoch in range(3):
        losses = []
        for x, y in DataLoader(samples, batch_size=6):
            optimizer.zero_grad()
            loss = F.cross_entropy(plain(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        expected.append(sum(losses) / len(losses))
    ported = port(make_model())

    history = fit(ported, ported.dataloader(samples, batch_size=6), epochs=3, progress=False)

    assert history == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(ported.state_dict(), plain.state_dict(), rtol=1e-4, atol=1e-6)


def test_the_losses_of_all_micro_batches_are_averaged(samples):
    ported = port(make_model(), micro_batch=2, accumulation=3, device_iterations=2, output_mode="all")

    (mean,) = fit(ported, ported.dataloader(samples), epochs=1, progress=False)

    assert 0.5 < mean < 2.0
    assert ported.report().num_training_calls == 2


def test_batches_may_be_dictionaries():
    rows = [{"input": torch.ones(4), "label": torch.tensor(1)}] * 6
    ported = port(make_model())

    history = fit(ported, ported.dataloader(rows, batch_size=3), epochs=2, progress=False)

    assert len(history) == 2
    assert history[1] < history[0]


def test_batches_of_one_tensor_are_for_models_with_a_loss_of_their_own():
    class OwnLoss(nn.Linear):
        def forward(self, x):
            return super().forward(x).pow(2).mean()

    model = OwnLoss(4, 3)
    ported = to_ipu(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))

    history = fit(ported, [torch.ones(6, 4)] * 5, epochs=2, progress=False)

    assert history[1] < history[0]


def test_an_empty_loader_has_no_loss():
    (mean,) = fit(port(make_model()), [], epochs=1, progress=False)

    assert mean != mean


def test_ctrl_c_keeps_what_was_learnt(samples):
    def interrupted():
        yield samples[:6]
        raise KeyboardInterrupt

    ported = port(make_model())

    with pytest.raises(KeyboardInterrupt):
        fit(ported, interrupted(), epochs=1, progress=False)

    assert ported.report().num_training_calls == 1
    assert not torch.equal(ported.state_dict()["0.weight"], make_model().state_dict()["0.weight"])


def test_what_each_call_returns_is_handed_on(samples):
    ported, losses = port(make_model()), []

    history = fit(
        ported,
        ported.dataloader(samples, batch_size=6),
        epochs=2,
        progress=False,
        after_call=lambda returned: losses.append(returned[1].item()),
    )

    assert len(losses) == 8
    assert history == pytest.approx([sum(losses[:4]) / 4, sum(losses[4:]) / 4])


def test_a_test_after_each_epoch_does_not_change_the_training(samples):
    plain, tested, seen = port(make_model()), port(make_model()), []

    def evaluate(epoch, mean_loss):
        tested.eval()
        _output, loss = tested(*samples[:6])
        seen.append((epoch, mean_loss, loss.item()))

    expected = fit(plain, plain.dataloader(samples, batch_size=6), epochs=2, progress=False)
    history = fit(tested, tested.dataloader(samples, batch_size=6), epochs=2, progress=False, after_epoch=evaluate)

    assert history == expected
    assert [row[:2] for row in seen] == [(1, history[0]), (2, history[1])]
    assert seen[1][2] < seen[0][2]
    assert tested.training is False


def test_validation_does_not_change_the_training(samples):
    def train(**settings):
        torch.manual_seed(3)
        ported = port(make_model())
        loader = ported.dataloader(DataLoader(samples, batch_size=6, shuffle=True))
        return fit(ported, loader, epochs=3, progress=False, **settings)

    validation = DataLoader(samples, batch_size=6, shuffle=True)

    assert train(validation=validation) == train()


def test_metrics_of_the_validation_are_returned_by_name(samples):
    ported = port(make_model())

    history = fit(
        ported,
        ported.dataloader(samples, batch_size=6),
        epochs=2,
        progress=False,
        validation=DataLoader(samples, batch_size=6),
        metrics={"zero": lambda _output, _labels: 0.0},
    )

    assert history.metrics["val_zero"] == [0.0, 0.0]
    assert len(history.metrics["val_loss"]) == 2


def test_a_name_that_is_not_measured_cannot_be_monitored(samples):
    ported = port(make_model())

    with pytest.raises(OptionError, match="measured are `train_loss`"):
        fit(ported, [samples[:6]], 1, progress=False, monitor="val_loss")

    assert ported.report().num_training_calls == 0


@pytest.mark.parametrize("settings", [{"mode": "smallest"}, {"log_every": 0}], ids=str)
def test_settings_of_no_meaning_are_refused(settings, samples):
    with pytest.raises(OptionError, match="P002"):
        fit(port(make_model()), [samples[:6]], 1, progress=False, **settings)


@pytest.mark.parametrize("epochs", ["3", -1, 2.0, True], ids=repr)
def test_what_is_no_number_of_epochs_is_refused(epochs, samples):
    with pytest.raises(OptionError, match="`epochs` is"):
        fit(port(make_model()), [samples[:6]], epochs, progress=False)


@pytest.mark.parametrize("name", ["loader", "validation"])
def test_batches_that_can_be_read_once_are_for_one_epoch(name, samples):
    def read():
        loaders = {"loader": [samples[:6]], "validation": [samples[:6]]}
        return {**loaders, name: (batch for batch in loaders[name])}

    assert len(fit(port(make_model()), **read(), epochs=1, progress=False)) == 1
    with pytest.raises(OptionError, match=f"`{name}` is a generator, which has no batches for a second epoch"):
        fit(port(make_model()), **read(), epochs=2, progress=False)


def test_metrics_have_names(samples):
    with pytest.raises(OptionError, match="`metrics` is a list"):
        fit(port(make_model()), [samples[:6]], 1, validation=[samples[:6]], metrics=[torch.mean], progress=False)


def test_a_number_is_no_early_stopping(samples):
    with pytest.raises(OptionError, match="`early_stopping` is 3"):
        fit(port(make_model()), [samples[:6]], 1, progress=False, early_stopping=3)


@pytest.mark.parametrize("name", ["loader", "validation"])
def test_a_dataset_in_the_place_of_a_loader_is_refused_with_the_loader(name, samples):
    loaders = {"loader": [samples[:6]], name: samples}

    with pytest.raises(OptionError, match=r"pass a loader: `ported.dataloader\(dataset"):
        fit(port(make_model()), epochs=1, progress=False, **loaders)


def test_a_single_callback_needs_no_list(samples):
    class Counter:
        count = 0

        def on_train_batch_end(self, *_of_call):
            self.count += 1

    counter = Counter()

    fit(port(make_model()), [samples[:6]], 2, progress=False, callbacks=counter)

    assert counter.count == 2
