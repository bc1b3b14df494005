"""What users get wrong: a clear error with its remedy, nothing lost, and training goes on as if it had not happened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, List

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

from porting import FixedBatchDataset, PortOptions, to_ipu
from porting.adapters import PortingWarning
from porting.diagnostics import PortingError

NUM_STEPS = 10
FAULT_AT = 4


class Classifier(nn.Module):
    """A classifier with BatchNorm and Dropout, so that weights, statistics and random numbers can get lost."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Linear(8, 3)

    def forward(self, x, mask=None):
        out = self.head(self.body(x))
        return out if mask is None else out * mask


def batches() -> List[Any]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(6, 4, generator=generator), torch.randint(3, (6,), generator=generator)) for _ in range(NUM_STEPS)
    ]


def make_port(loss=None, model_class=Classifier, **settings):
    torch.manual_seed(0)
    model = model_class()
    optimizer = settings.pop("optimizer", lambda parameters: torch.optim.Adam(parameters, lr=0.01))
    return to_ipu(
        model,
        nn.CrossEntropyLoss() if loss is None else loss,
        optimizer=optimizer(model.parameters()),
        options=PortOptions(seed=3, **settings),
    )


@pytest.fixture(scope="module")
def undisturbed():
    """The losses and weights of training that nothing disturbs."""
    with torch.random.fork_rng(devices=[]):
        ported = make_port()
        losses = [ported(*batch)[1].item() for batch in batches()]
        return losses, ported.state_dict()


@dataclass
class Disturbed:
    """A training run in which something goes wrong before step `FAULT_AT`."""

    ported: Any
    losses: List[float] = field(default_factory=list)

    def train_until_the_fault(self) -> None:
        self.losses += [self.ported(*batch)[1].item() for batch in batches()[:FAULT_AT]]

    def finish(self) -> None:
        self.losses += [self.ported(*batch)[1].item() for batch in batches()[len(self.losses) :]]


def assert_undisturbed(run: Disturbed, undisturbed: Any) -> None:
    losses, weights = undisturbed
    torch.testing.assert_close(run.losses, losses, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(run.ported.state_dict(), weights, rtol=1e-5, atol=1e-7)


def assert_explains(error: PortingError, code: str, *, fault: str, remedy: str) -> None:
    assert error.code == code
    assert fault in error.finding.message, str(error)
    assert any(remedy in line for line in error.finding.help), str(error)


X, Y = batches()[0]

# -- arguments unlike those of the compilation ------------------------------------------------------------------------

OTHER_BATCHES = {
    "another batch size": ((X[:3], Y[:3]), {}, "B001", "argument 0 has another shape", "`drop_last=True`"),
    "a last short batch": ((X[:5], Y[:5]), {}, "B001", "argument 0 has another shape", "`FixedBatchDataset("),
    "another number of features": ((X[:, :3], Y), {}, "B001", "argument 0 has another shape", "ported.destroy()"),
    "another dtype": ((X.double(), Y), {}, "B002", "argument 0 has another type", "`.to(torch.float32)`"),
    "another dtype of the label": ((X, Y.int()), {}, "B002", "argument 1 has another type", "`.to(torch.int64)`"),
    "one argument more": ((X, torch.ones(6, 3), Y), {}, "B003", "other arguments", "the same arguments"),
    "another name": ((X,), {"label": Y}, "B003", "other arguments", "the same arguments"),
    "a keyword more": ((X, Y), {"mask": torch.ones(6, 3)}, "B003", "other arguments", "the same arguments"),
    "a list for a tensor": (([X], Y), {}, "B003", "argument 0", "ported.destroy()"),
    "a tensor on another device": ((X.to("meta"), Y), {}, "B009", "on `meta`", "leave batches on the CPU"),
}


@pytest.mark.parametrize(("args", "kwargs", "code", "fault", "remedy"), OTHER_BATCHES.values(), ids=OTHER_BATCHES)
def test_a_batch_unlike_the_compiled_one(args, kwargs, code, fault, remedy, undisturbed):
    run = Disturbed(make_port())
    run.train_until_the_fault()

    with pytest.raises(PortingError) as caught:
        run.ported(*args, **kwargs)

    run.finish()
    assert_explains(caught.value, code, fault=fault, remedy=remedy)
    assert_undisturbed(run, undisturbed)


@pytest.mark.parametrize(("args", "kwargs", "code", "fault", "remedy"), OTHER_BATCHES.values(), ids=OTHER_BATCHES)
def test_compiling_again_for_another_batch(args, kwargs, code, fault, remedy, undisturbed):
    run = Disturbed(make_port())
    run.train_until_the_fault()

    with pytest.raises(PortingError) as caught:
        run.ported.compile(*args, **kwargs)

    run.finish()
    assert_explains(caught.value, code, fault=fault, remedy=remedy)
    assert_undisturbed(run, undisturbed)


def test_another_value_of_an_argument_that_is_compiled_in():
    class Scaled(nn.Linear):
        def forward(self, x, scale):
            return super().forward(x) * scale

    ported = make_port(model_class=lambda: Scaled(4, 3))
    ported(X, 2.0, Y)

    with pytest.raises(PortingError) as caught:
        ported(X, 3.0, Y)

    assert_explains(caught.value, "B003", fault="argument 1 has another value", remedy="make it a tensor")
    assert ported(X, 2.0, Y)[1].shape == ()


# -- faults before anything is compiled -------------------------------------------------------------------------------


def test_a_batch_that_cannot_be_cut_into_micro_batches(undisturbed):
    ported = make_port(accumulation=4)

    with pytest.raises(PortingError) as caught:
        ported(X, Y)

    assert_explains(
        caught.value, "B004", fault="a batch of 6 rows cannot be cut", remedy="hand over `options.samples_per_call`"
    )
    run = Disturbed(to_ipu_again(ported))
    run.finish()
    assert_undisturbed(run, undisturbed)


def to_ipu_again(ported):
    """Port the same module once more, as it was left, with the usual settings."""
    model = ported.model
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, options=PortOptions(seed=3))


def test_a_batch_of_another_size_than_the_options_ask_for():
    ported = make_port(micro_batch=4, accumulation=2)

    with pytest.raises(PortingError) as caught:
        ported(X, Y)

    assert_explains(
        caught.value, "B001", fault="the batch has 6 rows, the options ask for 8", remedy="ported.dataloader"
    )


class Unknown(torch.optim.Optimizer):
    def __init__(self, parameters) -> None:
        super().__init__(parameters, {"lr": 0.1})


@pytest.mark.parametrize(
    ("make_optimizer", "fault", "remedy"),
    [
        (torch.optim.Adagrad, "`Adagrad` has no counterpart on the device", "the nearest is `torch.optim.RMSprop`"),
        (torch.optim.LBFGS, "`LBFGS` has no counterpart on the device", "the nearest is `torch.optim.SGD`"),
        (Unknown, "`Unknown` has no counterpart on the device", "use one of these"),
    ],
    ids=["Adagrad", "LBFGS", "one's own"],
)
def test_an_unknown_optimizer(make_optimizer, fault, remedy, undisturbed):
    torch.manual_seed(0)
    model = Classifier()

    with pytest.raises(PortingError) as caught:
        to_ipu(model, nn.CrossEntropyLoss(), optimizer=make_optimizer(model.parameters()))

    assert_explains(caught.value, "O001", fault=fault, remedy=remedy)
    assert "SGD, Adam, AdamW, RMSprop, LAMB" in str(caught.value)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    run = Disturbed(to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, options=PortOptions(seed=3)))
    run.finish()
    assert_undisturbed(run, undisturbed)


WRONG_LOSSES = {
    "not a scalar": (nn.CrossEntropyLoss(reduction="none"), "L002", "a loss of shape [6]", "reduction='mean'"),
    "detached": (lambda out, y: F.cross_entropy(out.detach(), y), "L003", "", "detach"),
    "detached at the end": (lambda out, y: F.cross_entropy(out, y).detach(), "L003", "", "detach"),
    "without gradients": (torch.no_grad()(F.cross_entropy), "L003", "", "no_grad"),
    "an integer": (lambda out, y: (out.argmax(-1) == y).sum(), "L003", "which can have no gradient", "differentiable"),
    "a number": (lambda out, y: 1.0, "L003", "a Python float", "keep the loss a tensor"),
    "missing": (lambda out, y: None, "L004", "gives None", "return the loss"),
    "several": (lambda out, y: (F.cross_entropy(out, y), out.mean()), "L002", "a tuple of 2 values", "loss={'a'"),
}


@pytest.mark.parametrize(("loss", "code", "fault", "remedy"), WRONG_LOSSES.values(), ids=WRONG_LOSSES)
def test_a_loss_that_cannot_be_trained_with(loss, code, fault, remedy, undisturbed):
    ported = make_port(loss)

    with pytest.raises(PortingError) as caught:
        ported(X, Y)

    assert_explains(caught.value, code, fault=fault, remedy=remedy)
    run = Disturbed(to_ipu_again(ported))
    run.finish()
    assert_undisturbed(run, undisturbed)


def test_a_model_that_returns_dictionaries_and_a_loss_that_takes_tensors():
    class WithDictionary(Classifier):
        def forward(self, x):
            return {"logits": super().forward(x), "features": x}

    ported = make_port({"logits": nn.CrossEntropyLoss()}, model_class=WithDictionary)
    output, loss = ported(X, Y)

    assert list(output) == ["logits", "features"]
    assert loss.shape == ()


def test_a_loss_for_an_output_that_the_dictionary_does_not_have():
    class WithDictionary(Classifier):
        def forward(self, x):
            return {"scores": super().forward(x)}

    ported = make_port({"logits": nn.CrossEntropyLoss()}, model_class=WithDictionary)

    with pytest.raises(PortingError) as caught:
        ported(X, Y)

    assert_explains(caught.value, "L007", fault="needs output 'logits'", remedy="say which output it is")
    assert "'scores'" in str(caught.value)


def test_a_model_without_loss_that_returns_none():
    torch.manual_seed(0)
    model = nn.ModuleDict({"body": nn.Linear(4, 3)})
    model.forward = lambda x: {"logits": model["body"](x)}
    ported = to_ipu(model)

    with pytest.raises(PortingError) as caught:
        ported(X)

    assert_explains(caught.value, "L004", fault="no `loss` among the keys `logits`", remedy="to_ipu(model, loss)")


FACTORS = torch.ones(3)
READERS = {
    "item": ("C001", lambda h: h * h.mean().item()),
    "if": ("C001", lambda h: h if h.mean() > 0 else -h),
    "numpy": ("C001", lambda h: h * float(h.detach().numpy().mean())),
    "tolist": ("C001", lambda h: h * h.mean().tolist()),
    "float": ("C001", lambda h: h * float(h.mean())),
    "mask": ("C002", lambda h: h[h.sum(-1) > 0]),
    "nonzero": ("C002", lambda h: h[h.sum(-1).nonzero().squeeze(1)]),
    "cpu": ("C004", lambda h: h.cpu()),
    "print": ("C010", lambda h: print(h) or h),  # noqa: T201
    "cpu tensor": ("C003", lambda h: h * FACTORS),
}


@pytest.mark.parametrize(("code", "read"), READERS.values(), ids=READERS)
def test_a_forward_that_reads_a_value(code, read, undisturbed):
    class Reader(Classifier):
        reads = True

        def forward(self, x):
            h = super().forward(x)
            return read(h) if Reader.reads else h

    ported = make_port(model_class=Reader)

    with pytest.raises(PortingError) as caught:
        ported(X, Y)

    finding = caught.value.finding
    assert finding.code == code
    assert finding.place.file == __file__
    assert finding.help
    Reader.reads = False
    run = Disturbed(ported)
    run.finish()
    assert_undisturbed(run, undisturbed)


# -- data -------------------------------------------------------------------------------------------------------------


def test_a_dataset_smaller_than_one_combined_batch(undisturbed):
    run = Disturbed(make_port())
    run.train_until_the_fault()
    small = TensorDataset(X, Y)

    with pytest.raises(PortingError) as caught:
        run.ported.dataloader(small, batch_size=32)

    run.finish()
    assert_explains(
        caught.value, "B005", fault="the dataset has 6 samples, but one call takes 32", remedy="lower `micro_batch`"
    )
    assert_undisturbed(run, undisturbed)


def test_a_dataset_that_leaves_a_short_last_batch():
    ported = make_port()
    samples = TensorDataset(*(torch.cat(parts) for parts in zip(*batches()[:2])))

    with pytest.warns(PortingWarning) as caught:
        loader = ported.dataloader(samples, batch_size=5)

    finding = caught[0].message.finding
    assert finding.code == "B006"
    assert "2 of 12 samples (16.7 %) are dropped" in finding.message
    assert any("FixedBatchDataset(dataset, batch_size=5)" in line for line in finding.help)
    assert [len(y) for _, y in loader] == [5, 5]


def test_the_last_short_batch_padded_on_advice():
    ported = make_port()
    samples = TensorDataset(*(torch.cat(parts) for parts in zip(*batches()[:2])))

    with pytest.warns(PortingWarning, match="B008"):
        loader = ported.dataloader(FixedBatchDataset(samples, 5), batch_size=5)
    losses = [ported(*batch)[1].item() for batch in loader]

    assert len(losses) == 3
    assert all(loss == loss for loss in losses)


# -- checkpoints ------------------------------------------------------------------------------------------------------


def cut_off(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def flip_a_bit(path):
    weight = torch.load(path, weights_only=True)["head.weight"]
    content = bytearray(path.read_bytes())
    content[content.index(weight.numpy().tobytes())] ^= 1
    path.write_bytes(bytes(content))


DAMAGES = {
    "cut off": cut_off,
    "a flipped bit": flip_a_bit,
    "empty": lambda path: path.write_bytes(b""),
    "no checkpoint at all": lambda path: path.write_text("these are not the weights you are looking for"),
    "a whole pickled model": lambda path: torch.save(nn.Linear(2, 2), path),
    "a list of tensors": lambda path: torch.save([torch.ones(3)], path),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint(damage, undisturbed, tmp_path):
    run = Disturbed(make_port())
    run.train_until_the_fault()
    path = tmp_path / "weights.pt"
    torch.save(run.ported.state_dict(), path)
    damage(path)

    with pytest.raises(PortingError) as caught:
        run.ported.load_state_dict(path)

    run.finish()
    assert caught.value.code == "K001"
    assert "weights.pt" in caught.value.finding.message
    assert caught.value.finding.notes
    assert caught.value.finding.help
    assert_undisturbed(run, undisturbed)


FOREIGN = {
    "another model's": lambda own: nn.Linear(2, 2).state_dict(),
    "with an entry missing": lambda own: {name: value for name, value in own.items() if name != "head.bias"},
    "with an entry too many": lambda own: {**own, "tail.bias": torch.zeros(3)},
    "with another shape": lambda own: {**own, "head.bias": torch.zeros(5)},
}


@pytest.mark.parametrize("exchange", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_checkpoint(exchange, undisturbed, tmp_path):
    run = Disturbed(make_port())
    run.train_until_the_fault()
    path = tmp_path / "weights.pt"
    torch.save(exchange(run.ported.state_dict()), path)

    with pytest.raises(PortingError) as caught:
        run.ported.load_state_dict(path)

    run.finish()
    assert_explains(
        caught.value,
        "K002",
        fault="does not fit `Classifier`; nothing was loaded",
        remedy="the checkpoint that belongs",
    )
    assert caught.value.finding.notes
    assert_undisturbed(run, undisturbed)
