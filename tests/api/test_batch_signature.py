from __future__ import annotations

import numpy
import pytest
import torch

from porting.api.batch_signature import BatchSignature

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
