import torch
from torch import nn
import poptorch


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, z):
        return self.net(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def forward(self, x, target):
        out = self.net(x)
        return out, nn.functional.binary_cross_entropy_with_logits(out, target)


class GeneratorStep(nn.Module):
    def __init__(self, generator, discriminator):
        super().__init__()
        self.generator, self.discriminator = generator, discriminator
        for parameter in self.discriminator.parameters():
            parameter.requires_grad_(False)

    def forward(self, z, target):
        fake = self.generator(z)
        out, loss = self.discriminator(fake, target)
        return fake, loss


generator, discriminator = Generator(), Discriminator()
step = GeneratorStep(generator, Discriminator())
options = poptorch.Options()
opt_g = poptorch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
opt_d = poptorch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
port_g = poptorch.trainingModel(step, options, optimizer=opt_g)
port_d = poptorch.trainingModel(discriminator, options, optimizer=opt_d)
ones, zeros = torch.ones(8, 1), torch.zeros(8, 1)
for number in range(100):
    fake, loss_g = port_g(torch.randn(8, 8), ones)
    _, loss_real = port_d(torch.randn(8, 16), ones)
    _, loss_fake = port_d(fake, zeros)
    port_d.copyWeightsToHost()
    step.discriminator.load_state_dict(discriminator.state_dict())
    print(number, loss_g.item(), (loss_real + loss_fake).item() / 2)
