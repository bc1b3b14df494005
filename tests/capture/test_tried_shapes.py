"""What an operator makes of small zeros is what torch's own rules say, and nothing where values would matter."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from porting.capture import tried_shapes
from porting.capture.operator_schema import list_leaves, map_leaves
from porting.capture.plain_shapes import UnknownShape
from porting.capture.shape_mode import UNKNOWN, ShapeMode
from porting.capture.tried_shapes import try_operator

aten = torch.ops.aten


def meta(*shape, strides=None, dtype=torch.float32):
    tensor = torch.empty(shape, dtype=dtype, device="meta")
    return tensor if strides is None else torch.empty_strided(shape, strides, dtype=dtype, device="meta")


def describe(result, given):
    """Return shapes, strides, types and places of tensors, and which of `given` they are, or share memory with."""
    storages = [tensor.untyped_storage()._cdata for tensor in given]
    return [
        (
            tuple(tensor.shape),
            tensor.stride(),
            tensor.dtype,
            tensor.storage_offset(),
            [tensor is other for other in given],
            [tensor.untyped_storage()._cdata == storage for storage in storages],
        )
        for tensor in list_leaves(result)
    ]


def by_torch(operator, args):
    with torch.no_grad(), FakeTensorMode() as mode:
        made = map_leaves(
            lambda leaf: (
                mode.from_tensor(torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype))
                if isinstance(leaf, torch.Tensor)
                else leaf
            ),
            args,
        )
        return describe(operator(*made), [leaf for leaf in list_leaves(made) if isinstance(leaf, torch.Tensor)])


@pytest.mark.parametrize(
    ("operator", "args"),
    [
        (aten.cumsum.default, (meta(2, 3), 1)),
        (aten.roll.default, (meta(2, 4, 3), [1], [1])),
        (aten.group_norm.default, (meta(2, 4, 3, strides=(12, 1, 4)), 2)),
        (aten.linear.default, (meta(2, 3, 4, strides=(4, 8, 1)), meta(5, 4), meta(5))),
        (aten.pixel_shuffle.default, (meta(2, 8, 3, 3), 2)),
        (aten.unfold.default, (meta(2, 8), 1, 4, 2)),
        (aten.expand.default, (meta(3, 1), [3, 4])),
        (aten.contiguous.default, (meta(3, 1),)),
        (aten.contiguous.default, (meta(3, 2, strides=(1, 3)),)),
        (aten.topk.default, (meta(2, 8), 3)),
        (aten.tensor_split.sections, (meta(7, 2), 3)),
        (aten.index_select.default, (meta(5, 2), 0, meta(3, dtype=torch.int64))),
        (aten.index.Tensor, (meta(5, 4), [None, meta(3, dtype=torch.int64)])),
        (aten.index.Tensor, (meta(5, 4, 3), [meta(2, dtype=torch.int64), None, meta(2, dtype=torch.int64)])),
        (aten.masked_fill.Scalar, (meta(2, 3), meta(2, 3, dtype=torch.bool), 0.0)),
        (aten.repeat.default, (meta(2, 3), [2, 1])),
        (aten.std.dim, (meta(2, 3), [1])),
        (aten.einsum.default, ("bij,bjk->bik", [meta(2, 3, 4), meta(2, 4, 5)])),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_tried_is_what_torch_says(operator, args):
    given = [leaf for leaf in list_leaves(args) if isinstance(leaf, torch.Tensor)]

    assert describe(try_operator(operator, args, {}), given) == by_torch(operator, args)


@pytest.mark.parametrize(("is_loaded", "rows"), [(False, 1 << 11), (True, 1 << 7)])
def test_more_is_tried_before_torchs_compiler_is_loaded(monkeypatch, is_loaded, rows):
    monkeypatch.setattr(tried_shapes, "is_compiler_loaded", lambda: is_loaded)

    assert try_operator(aten.amax.default, (meta(rows, 1 << 10), [1]), {}).shape == (rows,)
    assert try_operator(aten.linalg_vector_norm.default, (meta(rows, 1 << 10), 2, [1]), {}).shape == (rows,)
    with pytest.raises(UnknownShape):
        try_operator(aten.amax.default, (meta(rows << 2, 1 << 10), [1]), {})


@pytest.mark.parametrize(
    ("operator", "args"),
    [
        (aten.linalg_inv_ex.default, (meta(1024, 1024),)),
        (aten.inverse.default, (meta(1024, 1024),)),
        (aten.svd.default, (meta(1024, 1024),)),
        (aten.cholesky_inverse.default, (meta(1024, 1024),)),
        (aten.cdist.default, (meta(1024, 512), meta(1024, 512), 1.0)),
        (aten.repeat.default, (meta(1 << 20), [64])),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_would_take_long_is_not_tried(monkeypatch, operator, args):
    monkeypatch.setattr(tried_shapes, "is_compiler_loaded", lambda: False)

    with pytest.raises(UnknownShape):
        try_operator(operator, args, {})


def test_a_view_of_a_view_lies_where_the_first_does():
    view = meta(4, 6)[1:, 2:]

    (result,) = [try_operator(aten.diagonal.default, (view,), {})]

    assert (result.storage_offset(), result.stride()) == (8, (7,))


@pytest.mark.parametrize(
    ("operator", "args"),
    [
        (aten.nonzero.default, (meta(3),)),
        (aten.index.Tensor, (meta(3), [meta(3, dtype=torch.bool)])),
        (aten.one_hot.default, (meta(3, dtype=torch.int64),)),
        (aten.repeat_interleave.Tensor, (meta(3, dtype=torch.int64),)),
        (aten.bernoulli.default, (meta(3),)),
        (aten.rand_like.default, (meta(3),)),
        (aten.is_nonzero.default, (meta(1),)),
        (aten.add_.Tensor, (meta(3), meta(3))),
        (aten.cumsum.default, (meta(1 << 23), 0)),
        (aten.cumsum.default, (meta(0, 3), 1)),
        (aten.view.dtype, (meta(4), torch.int32)),
        (aten.ones.default, ([2],)),
    ],
    ids=lambda value: str(value)[:60],
)
def test_where_zeros_do_not_tell_nothing_is_said(operator, args):
    with pytest.raises(UnknownShape):
        try_operator(operator, args, {})


def test_no_random_number_is_drawn():
    before = torch.get_rng_state()
    with pytest.raises(UnknownShape):
        try_operator(aten.dropout.default, (meta(3), 0.5, True), {})

    assert torch.equal(torch.get_rng_state(), before)


WARNED_OF_ONCE = """
import torch, warnings
from porting.capture import capture_step

def reduce(table, index):
    return table.index_reduce(0, index, table, "mean")

table, index = torch.ones(2, 3), torch.tensor([0, 1])
module = torch.nn.Module()
module.forward = reduce
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    capture_step(module, (table, index), loss=None, mode="inference")
    print([str(each.message) for each in warned])
    reduce(table, index)
    print([str(each.message)[:25] for each in warned])
"""


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_warnings_are_left_for_the_run_of_the_users_values():
    done = subprocess.run([sys.executable, "-c", WARNED_OF_ONCE], capture_output=True, text=True, check=False)

    assert done.stdout.splitlines() == ["[]", "['index_reduce() is in beta']"], done.stderr


def test_a_division_by_zero_says_nothing_of_the_shape():
    mode = ShapeMode()
    numbers = mode.make_empty([3], dtype=torch.int64)

    assert mode.try_result_of(aten.remainder.Tensor, (numbers, numbers), {}) is UNKNOWN


def test_an_operator_of_a_library_is_not_tried():
    library = torch.library.Library("porting_tried_shapes", "DEF")
    library.define("same(Tensor x) -> Tensor")
    library.impl("same", lambda x: x.clone(), "CPU")

    with pytest.raises(UnknownShape):
        try_operator(torch.ops.porting_tried_shapes.same.default, (meta(3),), {})


LARGE = """
import sys, torch, torch.utils.checkpoint
from porting.capture import capture_step

before = set(sys.modules)  # in some versions torch itself loads the algebra system
module = torch.nn.Module()
module.forward = lambda x, index: x.amax(1)[:, index]
capture_step(module, (torch.ones(8, 256, 512), torch.tensor([3, 5])), loss=None, mode="inference")
print([name for name in ("torch._dynamo", "sympy") if name in set(sys.modules) - before])
"""


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_a_large_maximum_and_what_is_picked_of_it_load_no_compiler():
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=False)

    assert done.stdout.strip() == "[]", done.stderr
