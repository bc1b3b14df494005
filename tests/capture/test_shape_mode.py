"""Tensors without values need torch's compiler only where torch's own rules are asked."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode

from porting.capture.operator_schema import list_leaves, map_leaves
from porting.capture.shape_mode import UNKNOWN, ShapeMode, in_order_of, rule_for

aten = torch.ops.aten


def test_a_tensor_has_shape_type_and_strides():
    tensor = ShapeMode().make_empty([2, 3], dtype=torch.float16, strides=(1, 2))

    assert (tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device.type) == (
        (2, 3),
        (1, 2),
        torch.float16,
        "cpu",
    )


def test_torchs_own_rules_work_on_the_results_of_ours():
    mode = ShapeMode()
    result = mode.result_of(aten.relu.default, (mode.make_empty([2, 3], dtype=torch.float32),), {})

    with mode:
        assert torch.cumsum(result, 1).shape == (2, 3)


def test_our_rules_work_on_the_results_of_torchs_own():
    mode = ShapeMode()
    with mode:
        made = torch.ones(2, 3).cumsum(0)

    view = mode.result_of(aten.view.default, (made, [6]), {})

    assert view.untyped_storage()._cdata == made.untyped_storage()._cdata


@pytest.mark.parametrize("mode", [ShapeMode(), FakeTensorMode()])
def test_a_tensor_in_another_order_shares_its_memory(mode):
    with mode:
        tensor = torch.empty(2, 3)

    turned = in_order_of(tensor, (1, 2))

    assert (tuple(turned.shape), turned.stride()) == ((2, 3), (1, 2))
    assert turned.untyped_storage()._cdata == tensor.untyped_storage()._cdata


def test_what_an_operator_turned_in_place_is_seen():
    mode = ShapeMode()
    tensor = mode.make_empty([2, 3], dtype=torch.float32)
    with mode:
        tensor.t_()

    assert mode.result_of(aten.view.default, (tensor, [6]), {}) is UNKNOWN


def test_tensors_of_other_modes_are_not_known():
    foreign = ShapeMode().make_empty([2], dtype=torch.float32)

    assert ShapeMode().result_of(aten.relu.default, (foreign,), {}) is UNKNOWN
    assert ShapeMode().result_of(aten.relu.default, (torch.ones(2),), {}) is UNKNOWN


def test_a_cast_to_the_type_that_a_tensor_has_is_the_tensor():
    mode = ShapeMode()
    tensor = mode.make_empty([2], dtype=torch.float32)

    assert mode.result_of(aten.to.dtype, (tensor, torch.float32), {}) is tensor
    assert mode.result_of(aten.to.dtype, (tensor, torch.float16), {}).dtype == torch.float16


LOADED_DURING_CAPTURE = """
import sys, torch
from torch import nn
from porting.capture import capture_step

plain = torch.tensor, torch.cond
seen = []

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch._dynamo":
            seen.append((torch.tensor, torch.cond) == plain)

class Model(nn.Module):
    def forward(self, x):
        seen.append("torch._dynamo" in sys.modules)
        return x.cumsum(0)

sys.meta_path.insert(0, Watch())
# too large to be tried
graph = capture_step(Model(), [torch.ones(1 << 23)], mode="inference")
print(seen, [operator.operator for operator in graph.operators], (torch.tensor, torch.cond) == plain)
"""


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_a_compiler_that_is_loaded_in_the_middle_of_a_capture_sees_torch_as_it_is():
    done = subprocess.run([sys.executable, "-c", LOADED_DURING_CAPTURE], capture_output=True, text=True, check=False)

    assert done.stdout.strip() == "[False, True] ['aten.cumsum.default'] True", done.stderr


class T:
    """A tensor to be made: a shape, and perhaps strides and a type."""

    def __init__(self, *shape, strides=None, dtype=torch.float32):
        self.shape, self.strides, self.dtype = shape, strides, dtype

    def __repr__(self):
        return f"T{self.shape}"

    def made(self, _value=None):
        if self.strides is None:
            return torch.empty(self.shape, dtype=self.dtype)
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype)


def integers(*shape):
    return T(*shape, dtype=torch.int64)


# each head's columns lie beside those of other heads, as a projection to all of them leaves them
HEADS = T(2, 3, 5, 4, strides=(180, 4, 36, 1))
# samples first, of what an attention layer computes with time first
TURNED = T(3, 5, 4, strides=(4, 12, 1))
LSTM_WEIGHTS = [T(24, 4), T(24, 6), T(24), T(24)]
CELLS = [T(1, 3, 6), T(1, 3, 6)]

KNOWN = [
    # element by element
    (aten.relu.default, (T(2, 3),), {}),
    (aten.sigmoid.default, (T(3, 4, strides=(16, 1)),), {}),
    (aten.relu_.default, (T(2, 3),), {}),
    (aten.leaky_relu_.default, (T(2, 3), 0.01), {}),
    (aten.tanh_.default, (T(3, 4, strides=(16, 1)),), {}),
    (aten.gelu.default, (T(2, 3),), {"approximate": "tanh"}),
    (aten.clamp.default, (T(2, 3), 0.0, 6), {}),
    (aten.clamp_min.default, (T(), 1e-6), {}),
    (aten.pow.Tensor_Scalar, (T(2, 3), 2), {}),
    (aten.add.Tensor, (T(2, 3), T(1, 3)), {"alpha": 2}),
    (aten.add.Tensor, (T(3), T(2, 3)), {}),
    (aten.add.Tensor, (T(2, 3), T(2, 3, dtype=torch.float16)), {}),
    (aten.mul.Tensor, (T(3, dtype=torch.bfloat16), T(2, 3, dtype=torch.float16)), {}),
    (aten.add.Tensor, (integers(), 1), {}),
    (aten.add_.Tensor, (integers(), 1), {}),
    (aten.eq.Tensor, (integers(2, 1), integers(3)), {}),
    (aten.sub.Tensor, (integers(2, 1), integers(2, 3)), {}),
    (aten.add_.Tensor, (T(2, 3), T(2, 3, dtype=torch.float16)), {}),
    (aten.add_.Tensor, (T(3, 2, strides=(1, 3)), T(2)), {"alpha": 2}),
    (aten.div_.Tensor, (T(2, 3), 2), {}),
    (aten.mul.Tensor, (T(2, 1, 3), 2.0), {}),
    (aten.div.Tensor, (T(2, 3), T()), {}),
    (aten.rsub.Scalar, (T(2, 3), 1.0), {}),
    (aten.gt.Scalar, (T(2, 3), 0), {}),
    (aten.eq.Tensor, (T(2, 3), T(2, 3)), {}),
    (aten.dropout.default, (T(2, 3), 0.5, True), {}),
    (aten.dropout.default, (TURNED, 0.5, True), {}),
    (aten.relu.default, (T(3, 2, strides=(1, 3)),), {}),
    (aten.add.Tensor, (T(2, 1), T(1, 3)), {}),
    (aten.add.Tensor, (TURNED, T(3, 5, 4)), {}),
    (aten.add.Tensor, (TURNED, T(1, 5, 4)), {}),
    (aten.mul.Tensor, (TURNED, T(4)), {}),
    (aten.lt.Tensor, (TURNED, T(5, 1)), {}),
    (aten.layer_norm.default, (TURNED, [4], T(4), T(4)), {}),
    (aten.mean.dim, (TURNED, [1]), {}),
    (aten.sum.dim_IntList, (T(3, 5, 4, strides=(1, 12, 3)), [1], True), {}),
    (aten.add.Tensor, (T(3, 5, 4), TURNED), {}),
    (aten.mul.Tensor, (T(3, 5, 4), TURNED), {}),
    (aten.div.Tensor, (T(3, 5, 4), T(3, 5, 4, strides=(1, 12, 3))), {}),
    (aten.sub.Tensor, (T(3, 5), T(3, 5, strides=(1, 3))), {"alpha": 2}),
    (aten.softmax.int, (T(2, 3), -1), {}),
    (aten.to.dtype, (integers(1, 3), torch.int32), {}),
    (aten.to.dtype, (T(1, 3, strides=(9, 1)), torch.float16), {}),
    (aten.to.dtype, (T(2, 3), torch.float32), {}),
    (aten.to.dtype, (T(2, 3, dtype=torch.bfloat16), torch.float32, False, False, torch.preserve_format), {}),
    (aten.to.dtype, (T(2, 3), torch.float16, False, False, torch.contiguous_format), {}),
    (aten.clone.default, (T(2, 3),), {}),
    (aten.contiguous.default, (T(3, 2, strides=(1, 3)),), {}),
    (aten.contiguous.default, (T(3, 2),), {}),
    (aten.copy_.default, (T(2, 3), T(3)), {}),
    (aten.zeros.default, ([2, 3],), {}),
    (aten.new_zeros.default, (T(2), [2, 3]), {"dtype": torch.int32}),
    (aten.zeros_like.default, (T(2, 3),), {}),
    (aten.rand.default, ([2, 3],), {}),
    (aten.randn_like.default, (T(2, 3),), {"dtype": torch.float16}),
    (aten.full.default, ([2, 3], 0.5), {}),
    (aten.full.default, ([2], 7), {}),
    (aten.full.default, ([2], True), {"dtype": torch.float16}),
    (aten.full_like.default, (T(2, 3), 1.0), {}),
    (aten.arange.default, (3,), {}),
    (aten.arange.start, (3, 8), {"dtype": torch.float32}),
    (aten.arange.start_step, (8, 1, -3), {}),
    # views
    (aten.view.default, (T(2, 6), [-1, 3]), {}),
    (aten.reshape.default, (T(3, 2, strides=(1, 3)), [6]), {}),
    (aten.flatten.using_ints, (T(2, 3, 4), 1), {}),
    (aten.transpose.int, (T(2, 3), 0, 1), {}),
    (aten.permute.default, (T(2, 3, 4), [2, 0, 1]), {}),
    (aten.slice.Tensor, (T(4, 3), 0, 1, 3), {}),
    (aten.select.int, (T(4, 3), 1, -1), {}),
    (aten.split.Tensor, (T(2, 6), 2, 1), {}),
    (aten.chunk.default, (T(2, 6), 4, 1), {}),
    (aten.unbind.int, (T(2, 6),), {}),
    (aten.expand.default, (T(1, 6), [3, -1]), {}),
    (aten.broadcast_tensors.default, ([T(2, 3), T(1, 3)],), {}),
    (aten.broadcast_tensors.default, ([T(2, 3), T(2, 3)],), {}),
    # layers
    (aten.linear.default, (T(2, 5, 3), T(4, 3), T(4)), {}),
    (aten.linear.default, (T(2, 3, strides=(9, 1)), T(4, 3)), {}),
    (aten.linear.default, (TURNED, T(6, 4), T(6)), {}),
    (aten.linear.default, (TURNED, T(6, 4)), {}),
    (aten.linear.default, (T(3, 5, 4, strides=(1, 12, 3)), T(6, 4), T(6)), {}),
    (aten.conv1d.default, (T(2, 3, 9), T(4, 3, 3), T(4), [2], [1]), {}),
    (aten.conv2d.default, (T(2, 4, 9, 8), T(6, 2, 3, 2), None, [2, 1], [1, 0], [1, 2], 2), {}),
    (aten.conv3d.default, (T(1, 1, 5, 5, 5), T(2, 1, 3, 3, 3)), {}),
    (aten.batch_norm.default, (T(2, 3, 4), T(3), T(3), T(3), T(3), True, 0.1, 1e-5, True), {}),
    (aten.batch_norm.default, (T(2, 3, 4, dtype=torch.bfloat16), *[T(3)] * 4, True, 0.1, 1e-5, True), {}),
    (aten.layer_norm.default, (T(2, 3, 4), [3, 4], T(3, 4), T(3, 4)), {}),
    (aten.group_norm.default, (T(2, 4, 3), 2, T(4), T(4)), {}),
    (aten.max_pool2d.default, (T(2, 3, 8, 9), [3, 2], [2, 2], [1, 1], [1, 1], True), {}),
    (aten.max_pool2d.default, (T(2, 3, 8, 8), [2, 2]), {}),
    (aten.avg_pool2d.default, (T(2, 3, 7, 7), [2, 2], [2, 2], [0, 0], True), {}),
    (aten.adaptive_avg_pool2d.default, (T(2, 3, 7, 7), [1, 1]), {}),
    (aten.embedding.default, (T(9, 4), integers(2, 5)), {}),
    (aten.lstm.input, (T(5, 3, 4), CELLS, LSTM_WEIGHTS, True, 1, 0.0, True, False, False), {}),
    (aten.lstm.input, (T(3, 5, 4), CELLS, LSTM_WEIGHTS, True, 1, 0.0, True, False, True), {}),
    (aten.upsample_bilinear2d.vec, (T(1, 2, 3, 5), None, False, [2.0, 1.5]), {}),
    (aten.upsample_nearest2d.vec, (T(1, 2, 3, 5), [6, 7], None), {}),
    (aten.scaled_dot_product_attention.default, (HEADS, HEADS, HEADS, None, 0.0, True), {}),
    (aten.scaled_dot_product_attention.default, (T(2, 3, 5, 4), T(2, 3, 5, 4), T(2, 3, 5, 4)), {}),
    (aten.scaled_dot_product_attention.default, (HEADS, HEADS, HEADS, None, 0.1), {}),
    (aten.scaled_dot_product_attention.default, (T(2, 3, 5, 4), T(2, 3, 5, 4), T(2, 3, 5, 4), None, 0.1, True), {}),
    (aten.scaled_dot_product_attention.default, (HEADS, HEADS, HEADS, T(5, 5), 0.1), {}),
    (aten.scaled_dot_product_attention.default, (HEADS, HEADS, HEADS, T(1, 1, 5, 5)), {}),
    (aten.scaled_dot_product_attention.default, (HEADS, HEADS, HEADS, T(2, 1, 5, 5, dtype=torch.bool)), {}),
    # products, sums, losses
    (aten.matmul.default, (T(2, 5, 3), T(3, 4)), {}),
    (aten.bmm.default, (T(2, 5, 3), T(2, 3, 4)), {}),
    (aten.mean.default, (T(2, 3),), {}),
    (aten.sum.dim_IntList, (T(2, 3, 4), [-1, 0], True), {}),
    (aten.flip.default, (T(2, 3), [0, -1]), {}),
    (aten.where.self, (T(2, 3, dtype=torch.bool), integers(2, 3), integers(2, 3)), {}),
    (aten.gather.default, (T(2, 3), 1, integers(2, 1)), {}),
    (aten.index.Tensor, (T(5, 3), [integers(2, 4)]), {}),
    (aten.cat.default, ([T(2, 3), T(4, 3)],), {}),
    (aten.cat.default, ([T(2, 1, 4, strides=(0, 4, 1)), T(2, 3, 4, strides=(12, 1, 3))], 1), {}),
    (aten.conv_transpose1d.default, (T(2, 4, 5), T(4, 3, 2), T(3), [2], [1], [1], 1, [2]), {}),
    (aten.conv_transpose2d.input, (T(2, 4, 5, 6), T(4, 3, 2, 2), T(3), [2, 2]), {}),
    (aten.conv_transpose2d.input, (T(2, 4, 5, 6), T(4, 3, 3, 2), None, [2, 1], [1, 0], [1, 0], 2), {}),
    (aten.conv_transpose3d.input, (T(2, 4, 3, 4, 5), T(4, 3, 2, 2, 2), T(3), [2, 2, 2]), {}),
    (aten.stack.default, ([T(2, 3), T(2, 3)], -1), {}),
    (aten.cross_entropy_loss.default, (T(2, 3), integers(2)), {}),
    (aten.cross_entropy_loss.default, (T(2, 3, 4), integers(2, 4), None, 0, -100, 0.1), {}),
    (aten.nll_loss_nd.default, (T(2, 3), integers(2)), {}),
    (aten.mse_loss.default, (T(2, 3), T(2, 3), 2), {}),
    (aten.huber_loss.default, (T(2, 3), T(2, 3), 0, 0.5), {}),
    (aten.binary_cross_entropy_with_logits.default, (T(2, 3), T(2, 3)), {}),
]


def described(result, arguments):
    """Describe results: where they lie, and which arguments they are or share memory with."""
    given = [leaf for leaf in list_leaves(arguments) if isinstance(leaf, torch.Tensor)]
    memories = [tensor.untyped_storage()._cdata for tensor in given]
    return [
        (
            tuple(tensor.shape),
            tensor.stride(),
            tensor.dtype,
            tensor.storage_offset(),
            [tensor is other for other in given],
            [tensor.untyped_storage()._cdata == memory for memory in memories],
        )
        for tensor in list_leaves(result)
    ]


def by_rule(operator, args, kwargs):
    mode = ShapeMode()

    def made(leaf):
        return mode.make_empty(leaf.shape, dtype=leaf.dtype, strides=leaf.strides) if isinstance(leaf, T) else leaf

    arguments = map_leaves(made, (args, kwargs))
    result = mode.result_of(operator, *arguments)
    return UNKNOWN if result is UNKNOWN else described(result, arguments)


def by_torch(operator, args, kwargs):
    with torch.no_grad(), FakeTensorMode() as mode:
        arguments = map_leaves(
            lambda leaf: mode.from_tensor(leaf.made()) if isinstance(leaf, T) else leaf, (args, kwargs)
        )
        with enable_python_dispatcher():
            return described(operator(*arguments[0], **arguments[1]), arguments)


@pytest.mark.parametrize(("operator", "args", "kwargs"), KNOWN, ids=lambda value: str(value)[:60])
def test_a_rule_says_what_torch_says(operator, args, kwargs):
    assert by_rule(operator, args, kwargs) == by_torch(operator, args, kwargs)


# of torch it depends on the version whether it is a copy or the tensor itself
@pytest.mark.parametrize("args", [(T(2, 3), 0.0, True), (TURNED, 0.0, True), (T(2, 3), 0.5, False)])
def test_a_dropout_that_drops_nothing_shares_memory_as_in_this_torch(args):
    tensor = args[0].made()
    is_kept = torch.dropout(tensor, *args[1:]).data_ptr() == tensor.data_ptr()

    ((*layout, _is_same, shares),) = by_rule(aten.dropout.default, args, {})

    assert layout == list(by_torch(aten.clone.default, args[:1], {})[0][:4])
    assert shares == [is_kept]


UNUSUAL = [
    (aten.relu.default, (T(2, 3, dtype=torch.int32),), {}),
    (aten.relu.default, (T(3, 1, 2, strides=(1, 6, 3)),), {}),
    (aten.add.Tensor, (T(2, 3), T(2, 2)), {}),
    (aten.add.Tensor, (T(3, 1, 4), T(3, 1, 4, strides=(1, 12, 3))), {}),
    (aten.add.Tensor, (T(2, 3), T(dtype=torch.float16)), {}),
    (aten.add.Tensor, (integers(2), 0.5), {}),
    (aten.add.Tensor, (T(2, 3), True), {}),
    (aten.div.Tensor, (integers(2), 2), {}),
    (aten.add_.Tensor, (T(3), T(2, 3)), {}),
    (aten.add_.Tensor, (integers(3), T(3)), {}),
    (aten.div_.Tensor, (integers(3), 2), {}),
    (aten.linear.default, (T(2, 5), T(4, 3)), {}),
    (aten.conv2d.default, (T(2, 3, 2, 2), T(4, 3, 3, 3)), {}),
    (aten.conv2d.default, (T(2, 3, 8, 8, strides=(192, 1, 24, 3)), T(4, 3, 3, 3)), {}),
    (aten.batch_norm.default, (T(2, 3), *[T(3, dtype=torch.float16)] * 4, True, 0.1, 1e-5, True), {}),
    (aten.batch_norm.default, (T(1, 3), T(3), T(3), T(3), T(3), True, 0.1, 1e-5, True), {}),
    (aten.max_pool2d.default, (T(2, 3, 8, 8), [2, 2], [2, 2], [2, 2]), {}),
    (aten.view.default, (T(2, 6), [5]), {}),
    (aten.cross_entropy_loss.default, (T(2, 3), T(2, 4)), {}),
    (aten.where.self, (T(2, 1, dtype=torch.bool), T(2, 3), T(2, 3)), {}),
    (aten.gather.default, (T(2, 3), 1, integers(2)), {}),
    (aten.index.Tensor, (T(5, 3), [None, integers(2)]), {}),
    (aten.cross_entropy_loss.default, (T(2, 3), integers(3)), {}),
    (aten.matmul.default, (T(2, 3), T(2, 3)), {}),
    (aten.cat.default, ([T(2, 3), T(2, 4)],), {}),
    (aten.cat.default, ([T(2, 3, 4, 4, strides=(48, 1, 12, 3))] * 2, 1), {}),
    (aten.conv_transpose2d.input, (T(2, 4, 5, 6), T(4, 3, 2, 2), None, [2, 2], [0, 0], [2, 2]), {}),
    (aten.conv_transpose2d.input, (T(2, 4, 5, 6), T(3, 3, 2, 2)), {}),
    (aten.softmax.int, (T(2, 3), 2), {}),
    (aten.sum.dim_IntList, (T(0, 3), [0]), {}),
]


@pytest.mark.parametrize(("operator", "args", "kwargs"), UNUSUAL, ids=lambda value: str(value)[:60])
def test_what_is_unusual_or_wrong_is_left_to_torch(operator, args, kwargs):
    assert by_rule(operator, args, kwargs) is UNKNOWN


def test_an_operator_of_a_library_has_its_own_rule():
    assert rule_for(aten.relu.default) is not None
    assert rule_for(aten.nonzero.default) is None
