"""Generator and discriminator are Chainer's, layer by layer, and one loss trains each network as if it were alone."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from porting.models import dcgan

SMALL = dcgan.DCGANConfig(hidden=6, bottom=2, channels=16, noise=0.0)


@pytest.fixture
def gan():
    torch.manual_seed(0)
    made = dcgan.DCGAN(SMALL)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return made


def normalise(x, gamma, beta):
    """Normalise by the batch's statistics, as Chainer writes it: eps 2e-5, no gamma in the discriminator."""
    axes = (0, 2, 3) if x.dim() == 4 else (0,)
    shape = (1, -1, 1, 1) if x.dim() == 4 else (1, -1)
    mean = x.mean(dim=axes, keepdim=True)
    variance = ((x - mean) ** 2).mean(dim=axes, keepdim=True)
    scaled = (x - mean) / (variance + 2e-5).sqrt()
    return (scaled if gamma is None else scaled * gamma.view(shape)) + beta.view(shape)


def test_the_generator_is_the_definition_layer_by_layer(gan):
    weights = gan.generator.state_dict()
    hidden = torch.randn(5, 6)

    h = hidden @ weights["linear.weight"].T + weights["linear.bias"]
    h = F.relu(normalise(h, weights["first_norm.weight"], weights["first_norm.bias"])).reshape(5, 16, 2, 2)
    for i in range(3):
        h = F.conv_transpose2d(h, weights[f"convs.{i}.weight"], weights[f"convs.{i}.bias"], stride=2, padding=1)
        h = F.relu(normalise(h, weights[f"norms.{i}.weight"], weights[f"norms.{i}.bias"]))
    expected = torch.sigmoid(F.conv_transpose2d(h, weights["last.weight"], weights["last.bias"], padding=1))

    torch.testing.assert_close(gan.generator(hidden), expected, rtol=1e-4, atol=1e-5)
    assert expected.shape == (5, 3, 16, 16)


def test_the_discriminator_is_the_definition_layer_by_layer(gan):
    weights = gan.discriminator.state_dict()
    images = torch.rand(5, 3, 16, 16)

    h = F.leaky_relu(F.conv2d(images, weights["first.weight"], weights["first.bias"], padding=1), 0.2)
    for i, stride in enumerate((2, 1, 2, 1, 2, 1)):
        h = F.conv2d(h, weights[f"convs.{i}.weight"], weights[f"convs.{i}.bias"], stride=stride, padding=1)
        assert weights[f"convs.{i}.weight"].shape[-1] == (4 if stride == 2 else 3)
        h = F.leaky_relu(normalise(h, None, weights[f"norms.{i}.bias"]), 0.2)
    expected = (h.reshape(5, -1) @ weights["last.weight"].T + weights["last.bias"]).squeeze(1)

    torch.testing.assert_close(gan.discriminator(images), expected, rtol=1e-4, atol=1e-4)


def test_chainers_sizes_have_chainers_numbers_of_parameters():
    gan = dcgan.build("chainer")
    generator = [(100, 8192), (512, 256, 16), (256, 128, 16), (128, 64, 16), (64, 3, 9)]
    discriminator = [(3, 64, 9), (64, 128, 16), (128, 128, 9), (128, 256, 16), (256, 256, 9), (256, 512, 16)]
    discriminator += [(512, 512, 9), (8192, 1)]
    biases = 8192 + 256 + 128 + 64 + 3, 64 + 128 + 128 + 256 + 256 + 512 + 512 + 1
    gammas, betas = 8192 + 256 + 128 + 64, 128 + 128 + 256 + 256 + 512 + 512

    counts = [sum(parameter.numel() for parameter in part.parameters()) for part in (gan.generator, gan.discriminator)]

    def weights(shapes):
        return sum(int(torch.tensor(shape).prod()) for shape in shapes)

    assert counts == [weights(generator) + biases[0] + 2 * gammas, weights(discriminator) + biases[1] + betas]
    assert counts == [3_599_363, 5_862_657]


def test_initial_weights_are_normal_with_the_scale_of_the_configuration():
    torch.manual_seed(0)

    weights = dcgan.build("chainer").discriminator.convs[5].weight

    assert weights.std().item() == pytest.approx(0.02, rel=0.01)


def test_noise_is_added_in_training_only(gan):
    noisy = dcgan.DCGAN(dataclasses.replace(SMALL, noise=0.2))
    noisy.load_state_dict(gan.state_dict())
    images = torch.rand(5, 3, 16, 16)

    assert not torch.equal(noisy.discriminator(images), noisy.discriminator(images))
    noisy.eval()
    assert torch.equal(noisy.discriminator(images), noisy.discriminator(images))


def test_noise_has_the_standard_deviation_of_the_configuration():
    torch.manual_seed(0)
    discriminator = dcgan.build("small").discriminator

    noise = discriminator._add_noise(torch.zeros(100_000))

    assert noise.std().item() == pytest.approx(0.2, rel=0.02)


def test_a_discriminator_that_is_held_gives_its_logits_and_keeps_nothing(gan):
    images = torch.rand(5, 3, 16, 16, requires_grad=True)
    before = {name: value.clone() for name, value in gan.discriminator.state_dict().items()}

    held = gan.discriminator.hold(images)
    held.sum().backward()

    assert all(torch.equal(value, before[name]) for name, value in gan.discriminator.state_dict().items())
    assert all(parameter.grad is None for parameter in gan.discriminator.parameters())
    assert images.grad.abs().sum() > 0
    torch.testing.assert_close(held, gan.discriminator(images.detach()))


def test_losses_are_softplus_of_the_logits():
    real, fake, held = torch.randn(3, 7)

    loss = dcgan.loss(dcgan.Logits(real, fake, held), torch.ones(7))

    expected = torch.log1p(torch.exp(-real)).mean() + torch.log1p(torch.exp(fake)).mean()
    torch.testing.assert_close(loss, expected + torch.log1p(torch.exp(-held)).mean())


def test_each_network_gets_the_gradients_of_its_own_loss_only(gan):
    hidden, images, targets = dcgan.example_batch(SMALL, batch_size=5)
    made = gan.generator(hidden)
    real, fake = gan.discriminator(images), gan.discriminator(made.detach())
    of_discriminator = torch.autograd.grad(
        dcgan.discriminator_loss(real, fake, targets), list(gan.discriminator.parameters())
    )
    of_generator = torch.autograd.grad(dcgan.generator_loss(gan.discriminator(made)), list(gan.generator.parameters()))

    dcgan.loss(gan(hidden, images), targets).backward()

    found = [parameter.grad for part in (gan.discriminator, gan.generator) for parameter in part.parameters()]
    for gradient, expected in zip(found, of_discriminator + of_generator):
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)


def test_hidden_numbers_are_uniform_between_minus_one_and_one():
    hidden = dcgan.make_hidden(SMALL, 5000, generator=torch.Generator().manual_seed(0))

    assert hidden.shape == (5000, 6)
    assert -1 <= hidden.min() < -0.99
    assert 0.99 < hidden.max() <= 1
    assert abs(hidden.mean().item()) < 0.02
