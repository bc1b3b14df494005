"""Executors that share weights take turns on the device, and hand the weights over through the host."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting import to_ipu


class Discriminator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.LeakyReLU(), nn.Linear(8, 1))

    def forward(self, x):
        return self.body(x)


class Adversary(nn.Module):
    """A generator seen through the discriminator, which is not trained here."""

    def __init__(self, generator: nn.Module, discriminator: nn.Module) -> None:
        super().__init__()
        self.generator, self.discriminator = generator, discriminator

    def forward(self, noise):
        return self.discriminator(self.generator(noise))


def make_gan():
    torch.manual_seed(3)
    generator, discriminator = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 4)), Discriminator()
    noise = [torch.randn(5, 2) for _ in range(8)]
    real = [torch.randn(5, 4) for _ in range(8)]
    fake = [torch.randn(5, 4) for _ in range(8)]
    return generator, discriminator, list(zip(noise, real, fake))


ONES, ZEROS = torch.ones(5, 1), torch.zeros(5, 1)
HALVES = torch.cat([ONES, ZEROS])


@pytest.fixture
def eager_gan():
    """Train the GAN in plain PyTorch; return the losses of both halves and the modules."""
    generator, discriminator, batches = make_gan()
    adversary = Adversary(generator, discriminator)
    steps = torch.optim.SGD(generator.parameters(), lr=0.1), torch.optim.SGD(discriminator.parameters(), lr=0.1)
    losses = []
    for noise, real, fake in batches:
        loss = F.binary_cross_entropy_with_logits(discriminator(torch.cat([real, fake])), HALVES)
        discriminator.zero_grad()
        loss.backward()
        steps[1].step()
        losses.append(loss.item())
        loss = F.binary_cross_entropy_with_logits(adversary(noise), ONES)
        adversary.zero_grad()
        loss.backward()
        steps[0].step()
        losses.append(loss.item())
    return losses, generator, discriminator


@pytest.fixture
def port_gan():
    """Port both halves; they have the discriminator in common, and its BatchNorm."""

    def port():
        generator, discriminator, batches = make_gan()
        loss = nn.BCEWithLogitsLoss()
        critic = to_ipu(discriminator, loss, optimizer=torch.optim.SGD(discriminator.parameters(), lr=0.1))
        forger = to_ipu(
            Adversary(generator, discriminator), loss, optimizer=torch.optim.SGD(generator.parameters(), lr=0.1)
        )
        return critic, forger, batches

    return port


def test_two_ported_models_with_a_module_in_common_train_it_in_turns(eager_gan, port_gan, same):
    expected, generator, discriminator = eager_gan
    critic, forger, batches = port_gan()

    losses = []
    for noise, real, fake in batches:
        losses.append(critic(torch.cat([real, fake]), HALVES)[1].item())
        losses.append(forger(noise, ONES)[1].item())

    same(losses, expected)
    same(critic.state_dict(), discriminator.state_dict())
    same(
        {k: v for k, v in forger.state_dict().items() if k.startswith("generator")},
        {f"generator.{k}": v for k, v in generator.state_dict().items()},
    )


def test_the_common_module_is_up_to_date_on_the_host_after_every_call(port_gan, same):
    critic, forger, batches = port_gan()
    shared = critic.model.body[0].weight
    seen = []

    for noise, real, fake in batches[:3]:
        critic(torch.cat([real, fake]), HALVES)
        seen.append(shared.detach().clone())
        forger(noise, ONES)
        seen.append(shared.detach().clone())

    changed = [not torch.equal(one, other) for one, other in zip(seen, seen[1:])]
    # the forger leaves the discriminator's weights alone
    assert changed == [False, True, False, True, False]


def test_inference_of_either_sees_what_the_other_has_trained(port_gan, same):
    critic, forger, batches = port_gan()
    noise, real, fake = batches[0]
    both = torch.cat([real, fake])
    infer = critic.inference()
    infer(both)

    forger(noise, ONES)
    critic(both, HALVES)
    output = infer(both)

    plain = copy.deepcopy(critic.model).eval()
    same(output, plain(both).detach())


def test_destroying_one_leaves_the_other_training(eager_gan, port_gan, same):
    expected, _, _ = eager_gan
    critic, forger, batches = port_gan()
    losses = []
    for i, (noise, real, fake) in enumerate(batches):
        losses.append(critic(torch.cat([real, fake]), HALVES)[1].item())
        losses.append(forger(noise, ONES)[1].item())

        (critic if i % 2 else forger).destroy()

    same(losses, expected)


def test_loading_weights_into_one_reaches_the_other(port_gan, same):
    critic, forger, batches = port_gan()
    noise, real, fake = batches[0]
    critic(torch.cat([real, fake]), HALVES)
    forger(noise, ONES)

    critic.load_state_dict(Discriminator().state_dict())
    expected = F.binary_cross_entropy_with_logits(copy.deepcopy(forger.model)(noise), ONES).detach()

    same(forger(noise, ONES)[1], expected)


def test_two_ported_models_that_share_nothing_stay_on_their_devices(make_model, batches):
    one, other = to_ipu(make_model(), nn.CrossEntropyLoss()), to_ipu(make_model(), nn.CrossEntropyLoss())

    for batch in batches[:2]:
        one(*batch)
        other(*batch)

    assert one.device_executor.isAttachedToDevice()
    assert other.device_executor.isAttachedToDevice()


def test_one_model_ported_with_two_losses_is_trained_by_both(make_model, batches, same):
    plain, model = make_model(), make_model()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    expected = []
    for i, (x, y) in enumerate(batches):
        optimizer.zero_grad()
        loss = F.cross_entropy(plain(x), y) if i % 2 else plain(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())

    sharp = to_ipu(model, nn.CrossEntropyLoss(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    small = to_ipu(model, lambda out, _: out.pow(2).mean(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    losses = [(sharp if i % 2 else small)(*batch)[1].item() for i, batch in enumerate(batches)]

    same(losses, expected)


def test_the_executor_that_trains_gives_the_device_to_inference_and_takes_it_back(make_model, batches):
    ported = to_ipu(make_model(), nn.CrossEntropyLoss())
    infer = ported.inference()
    ported(*batches[0])

    infer(batches[0][0])
    during = ported.device_executor.isAttachedToDevice(), infer.device_executor.isAttachedToDevice()
    ported(*batches[0])
    after = ported.device_executor.isAttachedToDevice(), infer.device_executor.isAttachedToDevice()

    assert (during, after) == ((False, True), (True, False))
