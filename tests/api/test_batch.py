"""The first batch of a port is checked, the values of each one too, and what differs from the first is named."""

from __future__ import annotations

import random
import warnings

import numpy
import pytest
import torch
from torch import nn

from porting import PortOptions, to_ipu
from porting.api.batch import BatchSignature, refuse_lost_values
from porting.diagnostics import BatchError, PortingError
from porting.support.host_state import seed_streams


class Graph(nn.Module):
    """Takes an argument that holds no samples."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 3)

    def forward(self, x, edges):
        return self.body(x + x[edges[0]].sum(0))


def test_an_argument_that_holds_no_samples_may_have_other_rows():
    ported = to_ipu(Graph(), nn.CrossEntropyLoss(), options=PortOptions(micro_batch=6))

    output, _ = ported(torch.randn(6, 4), torch.tensor([[0, 1], [2, 3]]), torch.zeros(6, dtype=torch.int64))

    assert output.shape == (6, 3)


def test_a_batch_must_have_the_rows_that_the_options_ask_for(make_model):
    ported = to_ipu(make_model(), nn.CrossEntropyLoss(), options=PortOptions(micro_batch=4, accumulation=2))

    with pytest.raises(BatchError) as caught:
        ported.compile(torch.randn(6, 4), torch.zeros(6, dtype=torch.int64))

    assert caught.value.finding.message == "the batch has 6 rows, the options ask for 8"
    assert caught.value.finding.notes == ("rows = 4 micro-batch x 2 accumulation x 1 replicas x 1 device iterations",)


def test_without_a_micro_batch_in_the_options_the_batch_decides(make_model):
    ported = to_ipu(make_model(), nn.CrossEntropyLoss(), options=PortOptions(accumulation=2))

    ported.compile(torch.randn(6, 4), torch.zeros(6, dtype=torch.int64))

    assert ported.report().micro_batch == 3


def test_a_call_that_fits_neither_with_nor_without_label_says_what_forward_takes(make_model):
    ported = to_ipu(make_model(), nn.CrossEntropyLoss())

    with pytest.raises(PortingError) as caught:
        ported(torch.randn(6, 4), torch.randn(6, 4), torch.zeros(6, dtype=torch.int64))

    assert caught.value.code == "L006"
    assert any("forward(input" in note for note in caught.value.finding.notes)


BAD_BATCHES = {
    "B012": (numpy.ones((8, 4), dtype="float32"), torch.zeros(8, dtype=torch.int64)),
    "B013": (torch.ones(8, 4), torch.full((8,), 3)),
    "C008": (torch.ones(0, 4), torch.zeros(0, dtype=torch.int64)),
    "L006": (torch.ones(8, 4), torch.zeros(8, dtype=torch.int64), torch.ones(8)),
}


@pytest.mark.parametrize(("code", "batch"), BAD_BATCHES.items(), ids=BAD_BATCHES)
def test_a_batch_that_no_training_can_use_is_a_finding_with_the_line(code, batch):
    model = nn.Linear(4, 3)
    before = model.weight.detach().clone()
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1), device="sim")

    with pytest.raises(PortingError) as caught:
        ported(*batch)

    assert caught.value.code == code
    assert caught.value.finding.place.file == __file__
    assert torch.equal(model.weight, before)


def test_a_label_out_of_range_leaves_the_port_usable():
    model = nn.Linear(4, 3)
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1), device="sim")
    x, y = torch.ones(8, 4), torch.zeros(8, dtype=torch.int64)
    ported(x, y)

    with pytest.raises(PortingError, match="B013"):
        ported(x, y + 7)

    assert torch.isfinite(ported(x, y)[1])


X = torch.ones(4, 2)


def difference(first, second):
    """Compare two calls, each `(args, kwargs)`."""
    return BatchSignature(*first).difference(BatchSignature(*second), remedy="compile anew")


@pytest.mark.parametrize(
    "call",
    [([X], {}), ([X, X], {"mask": X}), ([[X, (X, {"a": X})], None, 3, "mode", True], {}), ([], {})],
)
def test_a_call_of_the_same_shape_is_no_difference(call):
    assert difference(call, call) is None


@pytest.mark.parametrize(
    ("first", "second", "code", "message"),
    [
        (([X], {}), ([X[:3]], {}), "B001", "argument 0 has another shape than in the batch that was compiled for"),
        (([X], {}), ([X[0]], {}), "B001", "argument 0 has another shape than in the batch that was compiled for"),
        (([X], {}), ([X.double()], {}), "B002", "argument 0 has another type than in the batch that was compiled for"),
        (([X], {}), ([X, X], {}), "B003", "the call has other arguments than the one that was compiled for"),
        (([X], {}), ([], {"x": X}), "B003", "the call has other arguments than the one that was compiled for"),
        (([], {"a": X}), ([], {"b": X}), "B003", "the call has other arguments than the one that was compiled for"),
        (
            ([{"a": X}], {}),
            ([{"b": X}], {}),
            "B003",
            "argument 0['a'] is missing, which was there in the batch that was compiled for",
        ),
        (([[X]], {}), ([[X, X]], {}), "B003", "argument 0[1] was not there in the batch that was compiled for"),
        (
            ([X, None], {}),
            ([X, X], {}),
            "B003",
            "argument 1 is of another kind than in the batch that was compiled for",
        ),
        (
            ([X, 5], {}),
            ([X, 3], {}),
            "B003",
            "argument 1 has another value than in the batch that was compiled for",
        ),
        (
            ([X, True], {}),
            ([X, 1], {}),
            "B003",
            "argument 1 has another value than in the batch that was compiled for",
        ),
    ],
)
def test_the_difference_is_named(first, second, code, message):
    finding = difference(first, second)

    assert (finding.code, finding.message) == (code, message)


def test_a_difference_tells_both_sides_and_two_remedies():
    finding = difference(([X], {}), ([X.long()], {}))

    assert finding.notes == ("compiled for: float32[4, 2]", "this call:    int64[4, 2]")
    assert finding.help == ("convert it: `.to(torch.float32)`", "compile anew")
    assert finding.place.file == __file__


def test_arrays_among_the_arguments_do_not_break_the_comparison():
    finding = difference(([X, numpy.ones(3)], {}), ([X, numpy.ones(3)], {}))

    assert finding.code == "B003"


def test_the_rows_are_those_of_the_first_tensor_that_has_any():
    assert BatchSignature([torch.tensor(1.0), None, X], {}).rows == 4
    assert BatchSignature([], {"x": X}).rows == 4
    assert BatchSignature([3], {}).rows == 1


def test_a_signature_reads_as_a_list_of_arguments():
    assert str(BatchSignature([X, 5], {"labels": torch.zeros(4).long()})) == (
        "argument 0: float32[4, 2], argument 1: int 5, `labels`: int64[4]"
    )
    assert str(BatchSignature([], {})) == "no arguments"


class Scaled(nn.Linear):
    def forward(self, x, ids):
        return super().forward(x) + (ids % 1000).unsqueeze(1)


def make_ported():
    return to_ipu(Scaled(4, 3), nn.CrossEntropyLoss(), device="sim")


def batch_with(value, dtype=torch.int64):
    ids = torch.arange(6).to(dtype)
    ids[4] = value
    return torch.ones(6, 4), ids, torch.zeros(6, dtype=torch.int64)


@pytest.mark.parametrize("value", [2**31, 2**32 + 1, -(2**31) - 1])
def test_an_integer_beyond_int32_is_refused_with_its_argument_and_position(value):
    with pytest.raises(BatchError) as raised:
        make_ported()(*batch_with(value))

    assert raised.value.code == "B011"
    assert f"argument 1 has the value {value} at [4], which is beyond int32" in str(raised.value)


@pytest.mark.parametrize("value", [2**31 - 1, -(2**31)])
def test_the_largest_and_smallest_integers_of_the_device_pass(value):
    make_ported()(*batch_with(value))


def test_a_later_call_is_looked_at_as_the_first_is():
    ported = make_ported()
    ported(*batch_with(3))
    before = {name: value.clone() for name, value in ported.state_dict().items()}

    with pytest.raises(BatchError, match="beyond int32"):
        ported(*batch_with(2**40))

    assert all(torch.equal(value, before[name]) for name, value in ported.state_dict().items())


def test_inference_and_named_arguments_are_looked_at():
    x, ids, _y = batch_with(2**40)

    with pytest.raises(BatchError, match=r"`ids` has the value 1099511627776 at \[4\]"):
        make_ported().inference()(x=x, ids=ids)


def test_a_nested_argument_is_named():
    class Nested(nn.Linear):
        def forward(self, batch):
            return super().forward(batch["x"]) + batch["ids"][0].unsqueeze(1)

    x, ids, _y = batch_with(2**40)

    with pytest.raises(BatchError, match=r"argument 0\['ids'\]\[0\] has the value"):
        to_ipu(Nested(4, 3), nn.CrossEntropyLoss(), device="sim").inference()({"x": x, "ids": (ids,)})


def test_a_float_that_would_become_infinite_is_refused():
    with pytest.raises(BatchError, match=r"argument 1 has the value 1e\+300 at \[4\], which is beyond float32"):
        make_ported()(*batch_with(1e300, torch.float64))


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 3.4e38])
def test_floats_that_arrive_as_they_are_pass(value):
    x, ids, _y = batch_with(value, torch.float64)

    refuse_lost_values((x, [ids]), {"ids": ids})


def test_texts_in_a_batch_are_told_to_be_left_out():
    compiled, called = (BatchSignature([torch.ones(2, 4), [name]], {}) for name in ("a.png", "b.png"))

    finding = compiled.difference(called, remedy="compile again")

    assert finding.code == "B003"
    assert "leave them out of the call" in finding.help[0]


@pytest.mark.parametrize("loop", [{"loop": "host"}, {"loss": nn.MSELoss()}], ids=str)
def test_another_shape_is_told_of_several_executables_which_helps(loop):
    def call(rows, **options):
        ported = to_ipu(nn.Linear(4, 4), device="sim", options=PortOptions(engine="replay", **options), **loop)
        for count in (8, rows):
            ported(*[torch.ones(count, 4)] * (1 if "loop" in loop else 2))

    with pytest.raises(BatchError, match="B001") as caught:
        call(3)

    assert "`PortOptions(max_executables=2)`" in caught.value.finding.help[-1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the note that there is a second executable
        call(3, max_executables=2)


# -- the first batch of a loader ---------------------------------------------------------------------------------------


class Noisy(torch.utils.data.Dataset):
    """Draws from all of the host's random streams while a sample is read."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        noise = torch.rand(4) + random.random() + float(numpy.random.rand())
        return noise.float() + index, index % 3


@pytest.mark.parametrize("kind", ["of torch", "with a generator", "of the device"])
def test_a_port_that_is_warmed_up_trains_as_one_that_is_not(make_model, kind):
    trained = []
    for warms_up in (False, True):
        seed_streams(0)
        model = make_model()
        optimizer = torch.optim.Adam(model.parameters())
        ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer)
        generator = torch.Generator().manual_seed(3) if kind == "with a generator" else None
        loader = torch.utils.data.DataLoader(Noisy(), batch_size=4, shuffle=True, generator=generator)
        loader = ported.dataloader(loader) if kind == "of the device" else loader
        if warms_up:
            assert ported.warm_up(loader) > 0
            assert ported.warm_up(loader) == 0.0
        losses = [ported(x, y)[1].item() for _epoch in range(2) for x, y in loader]
        trained.append((losses, [one.tolist() for one in model.parameters()]))

    assert trained[0] == trained[1]


def test_an_iterator_and_an_empty_loader_are_no_loaders_to_warm_up_with(make_model):
    ported = to_ipu(make_model(), nn.CrossEntropyLoss())
    batch = torch.randn(6, 4), torch.zeros(6, dtype=torch.int64)

    with pytest.raises(PortingError, match="yields each batch once"):
        ported.warm_up(iter([batch]))
    with pytest.raises(PortingError, match="a `int` is no loader"):
        ported.warm_up(5)
    with pytest.raises(BatchError, match="the loader has no batch"):
        ported.warm_up([])
    assert ported.warm_up([batch]) > 0
