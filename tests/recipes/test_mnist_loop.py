"""MNIST's own files train the programs too, and no micro-batch of the last step is padding alone."""

import struct

import pytest

from porting.data import digits
from porting.recipes.mnist_loop import step_0_plain, step_5_device_iterations


@pytest.fixture
def mnist_folder(tmp_path):
    """Files of MNIST's format with digits that are drawn: 14 x 128 to train with, the last three missing, and 130."""
    for part, num_samples in (("train", 14 * 128 - 3), ("t10k", 130)):
        images, labels = digits.make_digits(num_samples, seed=0)
        header = struct.pack(">4I", 0x803, num_samples, 28, 28)
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(header + (images * 255).byte().numpy().tobytes())
        header = struct.pack(">2I", 0x801, num_samples)
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(header + labels.byte().numpy().tobytes())
    return str(tmp_path)


def test_a_loop_on_files_has_the_losses_of_plain_pytorch(mnist_folder):
    expected = step_0_plain.train(2 * 14, mnist_folder)

    losses = step_5_device_iterations.train(2 * 14, mnist_folder)

    assert losses == pytest.approx(expected, rel=1e-5)
    assert losses.measured.accuracies == pytest.approx(expected.measured.accuracies)
