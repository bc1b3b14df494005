"""accelerate on a device: `prepare` gives the model itself back, whose calls run there."""

from __future__ import annotations

import pickle
import sys

import pytest
import torch
from accelerate import Accelerator as PlainAccelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from porting.diagnostics import OptionError, PortingError
from porting.integrations import accelerate as on_device
from porting.integrations.accelerate import Accelerator

pytestmark = pytest.mark.filterwarnings("ignore::Warning:(torch|accelerate).*")


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


def make_loader(rows=26):
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(rows, 4, generator=generator), torch.randint(3, (rows,), generator=generator))
    return DataLoader(data, batch_size=6, shuffle=True, generator=torch.Generator().manual_seed(2))


def prepare(accelerator, **settings):
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)
    return accelerator.prepare(model, optimizer, make_loader(**settings), schedule)


def train(accelerator, parts, epochs=4):
    """The loop of accelerate's first page, with clipping and accumulation."""
    model, optimizer, loader, schedule = parts
    losses = []
    for _epoch in range(epochs):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                losses.append(loss.item())
    return losses


def make_accelerator(**settings):
    return Accelerator(port_device="sim", **settings)


@pytest.mark.parametrize("steps", [1, 3])
def test_twenty_steps_with_ragged_epochs_are_those_on_the_cpu(steps):
    accelerator = make_accelerator(gradient_accumulation_steps=steps)
    plain = PlainAccelerator(cpu=True, gradient_accumulation_steps=steps)

    losses = train(accelerator, prepare(accelerator))

    assert len(losses) == 20
    assert losses == train(plain, prepare(plain))
    assert accelerator.device_calls[0].list_device_modules() == ["Sequential"]


def test_a_state_that_is_saved_and_loaded_goes_on_as_if_it_had_not_ended(tmp_path):
    accelerator = make_accelerator()
    parts = prepare(accelerator, rows=24)
    train(accelerator, parts, epochs=2)
    accelerator.save_state(str(tmp_path))
    expected = train(accelerator, parts, epochs=1)

    other = make_accelerator()
    parts = prepare(other, rows=24)
    other.load_state(str(tmp_path))

    assert sorted(train(other, parts, epochs=1)) == pytest.approx(sorted(expected), abs=0.2)
    assert parts[1].param_groups[0]["lr"] < 0.05


def test_the_model_stays_itself_and_is_saved_as_such(tmp_path):
    accelerator = make_accelerator()
    model = make_model()

    prepared = accelerator.prepare(model)
    accelerator.save_model(prepared, str(tmp_path))

    assert prepared is model
    assert accelerator.unwrap_model(prepared) is model
    assert torch.equal(pickle.loads(pickle.dumps(prepared))[0].weight, model[0].weight)
    assert (tmp_path / "model.safetensors").exists()


def test_gradients_of_calls_without_synchronisation_add_up():
    accelerator = make_accelerator()
    model, plain = accelerator.prepare(make_model()), make_model()
    x = torch.ones(6, 4)

    with accelerator.no_sync(model):
        accelerator.backward(model(x).square().sum())
    accelerator.backward(model(2 * x).square().sum())
    plain(x).square().sum().backward()
    plain(2 * x).square().sum().backward()

    assert torch.equal(model[0].weight.grad, plain[0].weight.grad)


def test_freed_memory_leaves_a_plain_model():
    accelerator = make_accelerator()
    model = accelerator.prepare(make_model())
    model(torch.ones(6, 4))

    accelerator.free_memory()

    assert "forward" not in vars(model)
    assert accelerator.device_calls == []


def test_an_interrupt_leaves_everything_usable(monkeypatch):
    accelerator = make_accelerator()
    parts = prepare(accelerator)

    def interrupt():
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(parts[3], "step", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train(accelerator, parts)

    losses = train(accelerator, parts)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("settings", [{"mixed_precision": "bf16"}, {"dynamo_backend": "inductor"}], ids=str)
def test_what_belongs_to_other_devices_is_refused_by_name(settings):
    with pytest.raises(OptionError, match=next(iter(settings))) as caught:
        make_accelerator(**settings)

    assert caught.value.code == "P002"


def test_without_accelerate_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "accelerate", None)
    monkeypatch.delitem(sys.modules, on_device.__name__)

    with pytest.raises(PortingError, match=r"ipu-porting\[accelerate\]") as caught:
        __import__(on_device.__name__)

    assert caught.value.code == "X001"
