"""`torch.ops.poptorch`: all operators are there, and do on the CPU what PopTorch's kernels do."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import porting.simulator  # noqa: F401 - defines the library

library = torch.ops.poptorch

OPERATORS = (
    "begin_ipu_block end_ipu_block start_for_loop end_for_loop start_if_block start_else_block end_if_block "
    "optimizer_group begin_multi_conv end_multi_conv push_name_scope pop_name_scope set_attribute clear_attribute "
    "ipu_print_tensor nop set_matmul_serialization set_overlap_for_input set_overlap_for_output "
    "recomputation_checkpoint set_available_memory custom_operation ctc_beam_search_decoder dynamic_slice "
    "dynamic_update identity_loss internal_cast call_cpu_op end_cpu_op fps nearest nearest_batch_list"
).split()

X = torch.arange(6.0)

OTHER_LIBRARY = """
vendors = torch.library.Library("poptorch", "FRAGMENT")
vendors.define("nop(Tensor self) -> Tensor")
vendors.impl("nop", lambda x: x.clone(), "CPU")
vendors.define("identity_loss(Tensor x, int reduction) -> Tensor")
vendors.impl("identity_loss", lambda x, reduction: x.sum(), "CPU")
import porting.simulator as poptorch
"""
IMPORTED_ANEW = """
import porting.simulator
for name in [name for name in sys.modules if name.startswith("porting")]:
    del sys.modules[name]
import porting.simulator as poptorch
gc.collect()
"""
TRAINING = """
class Model(torch.nn.Linear):
    def forward(self, x):
        with poptorch.Block("block", ipu_id=0):
            return poptorch.identity_loss(poptorch.nop(super().forward(x)), "sum")

x = torch.ones(2, 3)
model = Model(3, 1)
expected = model(x).detach()
torch.testing.assert_close(poptorch.trainingModel(model)(x), expected)
print(len(torch.ops.poptorch.end_cpu_op([x])), not torch.equal(model(x), expected))
"""


@pytest.mark.parametrize("name", OPERATORS)
def test_the_operator_exists(name):
    assert getattr(library, name).default.namespace == "poptorch"


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("nop", ()),
        ("recomputation_checkpoint", ()),
        ("set_available_memory", (0.5,)),
        ("set_matmul_serialization", ("reducing_dim", 2, True)),
        ("set_overlap_for_input", ("no_overlap",)),
        ("set_overlap_for_output", ("no_overlap",)),
        ("ipu_print_tensor", ("title", True, 1000, 3, 80, 4, 0, ", ", "(", ")")),
    ],
)
def test_annotations_return_their_first_argument(name, settings):
    assert getattr(library, name)(X, *settings) is X


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("begin_ipu_block", (1, 0, 1)),
        ("end_ipu_block", ()),
        ("start_for_loop", ([X],)),
        ("start_if_block", (X,)),
        ("start_else_block", ([X],)),
        ("optimizer_group", (1, [X])),
        ("begin_multi_conv", ()),
        ("end_multi_conv", ([0.5], [0], 1, 2, 0.5, [0])),
        ("push_name_scope", ("scope",)),
        ("pop_name_scope", ()),
        ("set_attribute", ("attribute", "key", "value")),
        ("clear_attribute", ("attribute", "key")),
        ("call_cpu_op", ([X], "id")),
    ],
)
def test_marks_do_nothing(name, arguments):
    assert getattr(library, name)(*arguments) is None


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("end_for_loop", ([X, X + 1], [X, X], 7)), ("end_if_block", ([X, X + 1], X)), ("end_cpu_op", ([X, X + 1],))],
)
def test_ends_return_the_outputs(name, arguments):
    outputs = getattr(library, name)(*arguments)

    assert [output.tolist() for output in outputs] == [X.tolist(), (X + 1).tolist()]


@pytest.mark.parametrize(("reduction", "expected"), [(0, 15.0), (1, 2.5), (2, X.tolist())])
def test_an_identity_loss_reduces(reduction, expected):
    assert library.identity_loss(X, reduction).tolist() == expected


@pytest.mark.parametrize(("name", "dtype"), [("FLOAT", torch.float32), ("FLOAT16", torch.float16)])
def test_an_internal_cast_casts(name, dtype):
    assert library.internal_cast(X, name).dtype == dtype


def test_an_internal_cast_knows_two_types():
    with pytest.raises(RuntimeError, match="internal_cast knows the types FLOAT, FLOAT16, not INT32"):
        library.internal_cast(X, "INT32")


def test_dynamic_slices_are_plain_ones():
    assert library.dynamic_slice(X, 0, torch.tensor([1]), 4, 2).tolist() == [1, 3]
    assert library.dynamic_slice(X, 0, torch.tensor([4]), 4, 1).tolist() == [4, 5]
    assert library.dynamic_update(X, -torch.ones(2), 0, torch.tensor([1]), 2).tolist() == [0, -1, -1, 3, 4, 5]


def test_an_update_that_does_not_fit_changes_nothing():
    assert torch.equal(library.dynamic_update(X, torch.ones(3), 0, torch.tensor([1]), 2), X)


def test_custom_operations_are_zeros_like_their_examples():
    examples = [torch.ones(2, 3), torch.ones(1, dtype=torch.int32)]

    outputs = library.custom_operation([X], "Name", "domain", 1, 2, examples, "{}")

    assert [(tuple(output.shape), output.dtype, bool(output.any())) for output in outputs] == [
        ((2, 3), torch.float32, False),
        ((1,), torch.int32, False),
    ]


def test_the_decoder_is_zeros():
    scores, lengths, paths = library.ctc_beam_search_decoder(torch.ones(4, 2, 3), torch.tensor([4, 4]), 0, 10, 2)

    assert [tuple(tensor.shape) for tensor in (scores, lengths, paths)] == [(2, 2), (2, 2), (2, 2, 4)]
    assert not any(tensor.any() for tensor in (scores, lengths, paths))


def test_nearest_rows_with_batches_as_lists():
    x, y = torch.tensor([[0.0], [9.0]]), torch.tensor([[8.0], [1.0]])

    assert library.nearest(x, y).tolist() == [1, 0]
    assert library.nearest_batch_list(x, y, [0, 1], [0, 1]).tolist() == [0, 1]


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
@pytest.mark.parametrize("beginning", [OTHER_LIBRARY, IMPORTED_ANEW], ids=["another library", "imported anew"])
def test_operators_that_are_there_already_are_left_alone(beginning):
    program = "import gc, sys, torch\n" + beginning + TRAINING

    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (shown.stdout, shown.returncode) == ("1 True\n", 0), shown.stderr
