"""What is special about two networks: which way of training them is equal to which other."""

import pytest
import torch

from porting.models import dcgan
from porting.recipes.dcgan import (
    step_0_plain,
    step_1_one_optimizer,
    step_2_loss_in_forward,
    step_5_two_executors,
    workload,
)

pytestmark = pytest.mark.slow


def test_one_optimizer_is_two_that_step_after_both_backward_passes():
    gan = workload.make_gan(workload.NOISE)
    optimizers = [
        torch.optim.Adam(gan.discriminator.parameters(), workload.DISCRIMINATOR_RATE, workload.BETAS),
        torch.optim.Adam(gan.generator.parameters(), workload.GENERATOR_RATE, workload.BETAS),
    ]
    expected = []
    for hidden, images, targets in workload.make_loader(4):
        real, fake, held = gan(hidden, images)
        losses = dcgan.discriminator_loss(real, fake, targets), dcgan.generator_loss(held)
        for optimizer in optimizers:
            optimizer.zero_grad()
        for loss in losses:
            loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        expected.append(sum(losses).item())

    assert step_1_one_optimizer.train(4) == expected


def test_the_generator_of_the_port_makes_the_pictures_of_the_plain_one():
    plain, ported = (step.train(4).measured.made for step in (step_1_one_optimizer, step_2_loss_in_forward))

    torch.testing.assert_close(ported, plain)


def test_two_executors_draw_noise_of_their_own():
    with_noise, without = step_5_two_executors.train(4), step_5_two_executors.train(4, noise=0.0)

    assert with_noise != without
    assert without == step_0_plain.train(4, noise=0.0)
