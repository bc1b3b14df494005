"""`check` tells all that stands between a model and an IPU at once, and changes nothing."""

from __future__ import annotations

import gc
import linecache
import resource
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import porting
from porting import PortOptions, models
from porting.check import check
from porting.check.light_models import make_light
from porting.diagnostics import OptionError, Severity
from tests.counted_calls import count_calls

X, Y = torch.rand(8, 4), torch.randint(3, (8,))
LINEAR = nn.Linear(4, 3)


class Planted(nn.Module):
    """Faults of several kinds, each in a line of its own."""

    def __init__(self):
        super().__init__()
        self.layer, self.spare = nn.Linear(4, 3), nn.Linear(4, 3)
        self.register_buffer("wide", torch.tensor(2**40))

    def forward(self, x):
        x = self.layer(x) * self.wide
        if x.mean() > 0:
            x = torch.lgamma(x)
        else:
            x = torch.linalg.svdvals(x)[:1] * x
        top = x.detach().cpu().max()
        rows = torch.nonzero(x)
        return x * top + rows.sum()


def line_of(text):
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(source, 1) if line.strip().startswith(text))


def test_planted_faults_are_found_together_with_their_lines():
    report = check(Planted(), nn.CrossEntropyLoss(), (X, Y))

    call = line_of("report = check(Planted()")
    placed = {(finding.code, finding.place.line) for finding in report.findings}
    assert placed == {
        ("C001", line_of("if x.mean() > 0:")),
        ("C017", line_of("x = torch.lgamma(x)")),
        ("C017", line_of("x = torch.linalg.svdvals(x)")),
        ("C004", line_of("top = x.detach().cpu()")),
        ("C002", line_of("rows = torch.nonzero(x)")),
        # of no line of the model's
        ("C043", call),
        ("L020", call),
    }


_SLOW = ("bert", "dcgan", "seq2seq", "uresnet2d", "uresnet3d")


@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=pytest.mark.slow if name in _SLOW else ()) for name in models.FAMILIES]
)
def test_a_reference_model_has_no_error(family):
    made = models.load(family)
    batch = made.example_batch(made.VARIANTS[made.DEFAULT], batch_size=2)

    report = check(make_light(lambda: made.build(made.DEFAULT)), made.loss, batch)

    assert [finding for finding in report.findings if finding.severity is not Severity.NOTE] == []


def test_a_clean_step_is_clean():
    report = check(LINEAR, nn.CrossEntropyLoss(), (X, Y), optimizer=torch.optim.Adam(LINEAR.parameters()))

    assert report.is_clean
    assert report.looked_at == ("a step of 4 operators",)


def test_an_optimizer_that_the_device_lacks_is_told_with_the_rest():
    optimizer = torch.optim.Adagrad(LINEAR.parameters())

    assert check(LINEAR, nn.CrossEntropyLoss(), (X, Y), optimizer=optimizer).codes == ("O001",)


def test_the_first_batch_of_a_loader_will_do():
    loader = torch.utils.data.DataLoader(list(zip(X, Y)), batch_size=4)

    assert check(LINEAR, nn.CrossEntropyLoss(), loader=loader).is_clean


def test_a_loader_may_stand_for_the_batch():
    loader = torch.utils.data.DataLoader(list(zip(X, Y)), batch_size=4)

    report = check(LINEAR, nn.CrossEntropyLoss(), loader)

    assert report.is_clean
    assert report.facts[0].startswith("the loader's data:")


def test_without_a_batch_there_is_nothing_to_check():
    with pytest.raises(OptionError, match="`check` has no batch"):
        check(LINEAR, nn.CrossEntropyLoss())


def test_a_model_with_a_loss_of_its_own_is_checked():
    class WithLoss(nn.Linear):
        def forward(self, x, y):
            output = super().forward(x)
            return output, F.cross_entropy(output, y)

    assert check(WithLoss(4, 3), None, (X, Y)).is_clean


def test_a_missing_loss_is_a_finding():
    assert check(LINEAR, None, (X,)).codes == ("L002",)


def test_a_batch_by_name_is_checked():
    class Named(nn.Linear):
        def forward(self, inputs, labels):
            return F.cross_entropy(super().forward(inputs), labels)

    assert check(Named(4, 3), None, {"inputs": X, "labels": Y}).is_clean


def test_half_precision_adds_what_was_measured():
    report = check(nn.Linear(4, 3), nn.CrossEntropyLoss(), (X * 1e6, Y), options=PortOptions(precision="float16"))

    assert "P020" in report.codes
    assert any("loss scaling" in fact for fact in report.facts)


def test_ranges_are_measured_although_a_label_is_wrong():
    report = check(nn.Linear(4, 3), nn.CrossEntropyLoss(), (X * 1e6, Y + 9), options=PortOptions(precision="float16"))

    assert "P020" in report.codes
    assert report.facts[0].startswith(
        "ranges were measured with all labels 0, since those of the batch fail: IndexError"
    )


class SparseProduct(nn.Linear):
    def __init__(self, make):
        super().__init__(4, 3)
        self.make = make

    def forward(self, x):
        return super().forward(torch.sparse.mm(self.make(x), x))


@pytest.mark.parametrize(
    "make",
    [
        lambda x: (x @ x.t()).to_sparse(),
        lambda x: torch.sparse_coo_tensor(torch.tensor([[0], [1]]), torch.ones(1), (8, 8)),
        lambda x: torch.sparse_csr_tensor(torch.arange(9), torch.arange(8), torch.ones(8), size=(8, 8)),
    ],
    ids=["to_sparse", "coo", "csr"],
)
def test_sparse_tensors_are_told_with_their_line_and_the_step_goes_on(make):
    report = check(SparseProduct(make), nn.CrossEntropyLoss(), (X, Y))

    (finding,) = (finding for finding in report.findings if finding.code == "C012")
    assert "lambda x: " in linecache.getline(finding.place.file, finding.place.line)
    assert not any("the capture ended early" in fact for fact in report.facts)


def test_sparse_batches_of_a_loader_are_told_and_counted():
    batch = (torch.eye(8).to_sparse(), X, Y)

    report = check(SparseInput(4, 3), nn.CrossEntropyLoss(), loader=[batch] * 3)

    assert report.codes == ("C012",)
    assert report.findings[0].help == ("make it dense before the call: `.to_dense()`",)


class SparseInput(nn.Linear):
    def forward(self, adjacency, x):
        return super().forward(torch.sparse.mm(adjacency, x))


def test_what_a_port_computes_by_others_is_a_note():
    class Lower(nn.Linear):
        def forward(self, x):
            return torch.tril(super().forward(x))

    (finding,) = check(Lower(4, 3), nn.CrossEntropyLoss(), (X, Y)).findings

    assert (finding.code, finding.severity) == ("C025", Severity.NOTE)


def test_a_model_prints_nothing_and_stays_as_it_is(capsys):
    class Loud(nn.Linear):
        calls = 0

        def forward(self, x):
            self.calls += 1
            print("computing")  # noqa: T201 - what is tested
            return super().forward(x)

    model = Loud(4, 3).eval()
    before = torch.get_rng_state()

    check(model, nn.CrossEntropyLoss(), (X, Y))

    assert capsys.readouterr().out == ""
    assert (model.calls, model.training, model.weight.grad) == (0, False, None)
    assert torch.equal(torch.get_rng_state(), before)


def test_torchs_own_attention_is_no_fault_beside_others():
    class Reading(nn.TransformerEncoderLayer):
        def forward(self, x):
            x = super().forward(x)
            return x * 2 if x.max() > 0 else x

    report = check(Reading(8, 2, 16, dropout=0.0), nn.MSELoss(), (torch.rand(2, 3, 8), torch.rand(2, 3, 8)))

    assert report.codes == ("C001",)


def test_check_is_a_function_of_the_package():
    assert porting.check(LINEAR, nn.CrossEntropyLoss(), (X, Y)).is_clean


def test_faults_of_the_model_are_those_of_a_port():
    with pytest.raises(porting.PortingError) as caught:
        porting.to_ipu(Planted().requires_grad_(True), nn.CrossEntropyLoss(), device="sim")(X, Y)

    assert caught.value.code in check(Planted(), nn.CrossEntropyLoss(), (X, Y)).codes


def make_large(num_layers, width):
    layer = nn.TransformerEncoderLayer(width, 32, 4 * width, batch_first=True, dropout=0.0)
    return nn.Sequential(*[layer, *(nn.Linear(width, width) for _ in range(num_layers)), nn.Linear(width, 10)])


def check_light(width):
    model = make_light(lambda: make_large(50, width))
    batch = torch.rand(2, 16, width), torch.tensor([1, 2])
    return model, check(model, lambda out, y: F.cross_entropy(out[:, 0], y), batch)


@pytest.mark.slow
def test_a_model_of_a_thousand_million_parameters_takes_the_time_of_a_small_one_and_no_memory():
    found = []
    check_light(64)
    small = count_calls(lambda: check_light(64))
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    large = count_calls(lambda: found.extend(check_light(4096)))

    model, report = found
    assert sum(parameter.numel() for parameter in model.parameters()) > 1e9
    assert not [finding for finding in report.findings if finding.severity is Severity.ERROR]
    assert large < 1.1 * small
    # of a gigabyte of parameters: 4 GB if they had values
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000
