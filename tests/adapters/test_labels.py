"""Which arguments of a call are labels."""

from __future__ import annotations

import pytest

from porting.adapters.labels import NO_LABELS, SplitCall, check_label_keys, split_labels
from porting.diagnostics import OptionError, PortingError


def one_input(x):
    return x


def optional_mask(x, mask=None):
    return x


def two_inputs(x, z):
    return x


def any_inputs(*xs):
    return xs


def any_keywords(**named):
    return named


def no_input():
    return 0


@pytest.mark.parametrize(
    ("forward", "label", "args", "kwargs", "expected"),
    [
        (one_input, -1, ("x", "y"), {}, SplitCall(("x",), {}, "y")),
        (optional_mask, -1, ("x", "y"), {}, SplitCall(("x",), {}, "y")),
        (optional_mask, -1, ("x", "m", "y"), {}, SplitCall(("x", "m"), {}, "y")),
        (optional_mask, -1, ("x", "y"), {"mask": "m"}, SplitCall(("x",), {"mask": "m"}, "y")),
        (optional_mask, 1, ("x", "y", "m"), {}, SplitCall(("x", "m"), {}, "y")),
        (any_inputs, -1, ("x", "z", "y"), {}, SplitCall(("x", "z"), {}, "y")),
        (no_input, -1, ("y",), {}, SplitCall((), {}, "y")),
        (one_input, -1, (), {"x": "x", "target": "y"}, SplitCall((), {"x": "x"}, "y")),
        (one_input, -1, ("x",), {"target": "y"}, SplitCall(("x",), {}, "y")),
        (one_input, "target", (), {"target": "y", "x": "x"}, SplitCall((), {"x": "x"}, "y")),
        (any_keywords, "y", (), {"x": "x", "y": "y"}, SplitCall((), {"x": "x"}, "y")),
        (optional_mask, "mask", ("x", "y"), {}, SplitCall(("x",), {}, "y")),
        (one_input, (-2, -1), ("x", "a", "b"), {}, SplitCall(("x",), {}, ("a", "b"))),
        (one_input, ("b", "a"), ("x",), {"a": 1, "b": 2}, SplitCall(("x",), {}, (2, 1))),
        (one_input, (-1,), ("x", "y"), {}, SplitCall(("x",), {}, ("y",))),
    ],
)
def test_labels_are_taken_out_of_the_call(forward, label, args, kwargs, expected):
    assert split_labels(forward, args, kwargs, label=label) == expected


@pytest.mark.parametrize(
    ("forward", "label", "args", "kwargs"),
    [
        (one_input, -1, ("x",), {}),
        (one_input, -1, (), {"x": "x"}),
        (one_input, "target", ("x",), {}),
        (optional_mask, -1, ("x",), {"mask": "m"}),
        (two_inputs, -1, ("x", "z"), {}),
        (two_inputs, (-2, -1), ("x", "z"), {}),
        (any_inputs, -1, ("x",), {}),
        (any_inputs, -3, ("x",), {}),
    ],
)
def test_a_call_that_fits_the_model_as_it_is_has_no_labels(forward, label, args, kwargs):
    split = split_labels(forward, args, kwargs, label=label)

    assert split.labels is NO_LABELS
    assert (split.args, split.kwargs) == (args, kwargs)


@pytest.mark.parametrize(
    ("forward", "label", "args", "kwargs"),
    [
        (one_input, "y", ("x",), {"target": "y"}),
        (one_input, -1, ("x", "y", "z"), {}),
        (one_input, -1, (), {"x": "x", "a": 1, "b": 2}),
        (two_inputs, -1, ("x",), {}),
        (one_input, 5, ("x", "y"), {}),
        (one_input, ("a", "b"), ("x",), {"a": 1}),
    ],
)
def test_a_call_that_fits_neither_way_is_an_error(forward, label, args, kwargs):
    with pytest.raises(PortingError) as caught:
        split_labels(forward, args, kwargs, label=label)

    assert caught.value.code == "L006"
    assert caught.value.finding.place.file == __file__


def test_the_error_tells_what_the_call_has_and_what_the_model_takes():
    with pytest.raises(PortingError) as caught:
        split_labels(optional_mask, ("x",), {"target": "y"}, label="label")

    assert caught.value.finding.message == "the call has no argument 'label' to be the label"
    assert caught.value.finding.notes == (
        "positional arguments of the call: 1; keywords: `target`",
        "the model's own signature is `forward(x, mask=None)`",
    )


@pytest.mark.parametrize(("label", "unknown"), [(-1, "`image` or `mask`"), ("mask", "`image`"), (("mask",), "`image`")])
def test_keys_of_a_dictionary_that_are_no_arguments_of_the_model_are_named(label, unknown):
    with pytest.raises(PortingError) as caught:
        split_labels(one_input, (), {"image": "x", "mask": "y"}, label=label)

    assert caught.value.code == "L006"
    assert caught.value.finding.message == f"`forward` takes no argument called {unknown}"
    assert "rename the keys" in caught.value.finding.help[0]


def test_a_named_label_leaves_missing_inputs_to_the_model():
    split = split_labels(two_inputs, ("x",), {"y": "y"}, label="y")

    assert split == SplitCall(("x",), {}, "y")


def test_a_forward_without_a_signature_takes_everything():
    split = split_labels(dict.update, ("x", "y"), {}, label=-1)

    assert split == SplitCall(("x",), {}, "y")


@pytest.mark.parametrize("label", [(), None, True, 1.0, [-1], (-1, None)])
def test_a_label_that_is_no_position_or_name_is_refused(label):
    with pytest.raises(OptionError, match="`label` is"):
        check_label_keys(label)
