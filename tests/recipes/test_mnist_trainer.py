"""The last step's log counts every digit of the test once, however many micro-batches the padding fills."""

import struct

import pytest

from porting.data import digits
from porting.recipes.mnist_trainer import step_0_plain, step_4_device_iterations


# the means of micro-batches without a sample are no numbers, and are left out
@pytest.mark.filterwarnings(r"ignore:warning\[L008\]")
def test_a_test_set_that_leaves_micro_batches_empty_has_the_plain_figures(tmp_path):
    for part, num_samples in (("train", 8 * 128), ("t10k", 130)):
        images, labels = digits.make_digits(num_samples, seed=0)
        header = struct.pack(">4I", 0x803, num_samples, 28, 28)
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(header + (images * 255).byte().numpy().tobytes())
        header = struct.pack(">2I", 0x801, num_samples)
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(header + labels.byte().numpy().tobytes())

    expected, log = (step.train(1, str(tmp_path)).measured.log for step in (step_0_plain, step_4_device_iterations))

    assert log[0] == pytest.approx(expected[0], rel=1e-5)
