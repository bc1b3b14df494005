import random

import torch
import torch.nn as nn
import torch.optim as optim
import torch.utils.data
import torchvision.datasets as dset
import torchvision.transforms as transforms
import torchvision.utils as vutils

opt_niter, batch_size, nz, ngf, ndf, nc = 25, 64, 100, 64, 64, 3
random.seed(7)
torch.manual_seed(7)

dataset = dset.CIFAR10(
    root="data",
    download=True,
    transform=transforms.Compose(
        [transforms.Resize(64), transforms.ToTensor(), transforms.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))]
    ),
)
dataloader = torch.utils.data.DataLoader(dataset, batch_size=batch_size, shuffle=True, num_workers=2)  # finds: B010
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        torch.nn.init.normal_(m.weight, 0.0, 0.02)


class Generator(nn.Module):
    def __init__(self):
        super(Generator, self).__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 8, 4, 1, 0, bias=False),
            nn.BatchNorm2d(ngf * 8),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 8, nc, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, input):
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self):
        super(Discriminator, self).__init__()
        self.main = nn.Sequential(
            nn.Conv2d(nc, ndf, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, 1, 4, 1, 0, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, input):
        output = self.main(input)
        return output.view(-1, 1).squeeze(1)


netG = Generator().to(device)
netG.apply(weights_init)
netD = Discriminator().to(device)
netD.apply(weights_init)
criterion = nn.BCELoss()
fixed_noise = torch.randn(batch_size, nz, 1, 1, device=device)
real_label = 1
fake_label = 0

optimizerD = optim.Adam(netD.parameters(), lr=0.0002, betas=(0.5, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=0.0002, betas=(0.5, 0.999))  # finds: O014

for epoch in range(opt_niter):
    for i, data in enumerate(dataloader, 0):
        netD.zero_grad()  # finds: O008
        real_cpu = data[0].to(device)
        size = real_cpu.size(0)
        label = torch.full((size,), real_label, dtype=real_cpu.dtype, device=device)
        output = netD(real_cpu)
        errD_real = criterion(output, label)  # finds: L001
        errD_real.backward()  # finds: L010
        D_x = output.mean().item()  # finds: D020

        noise = torch.randn(size, nz, 1, 1, device=device)
        fake = netG(noise)
        label.fill_(fake_label)
        output = netD(fake.detach())
        errD_fake = criterion(output, label)  # finds: L001
        errD_fake.backward()  # finds: L010
        errD = errD_real + errD_fake
        optimizerD.step()  # finds: O007

        netG.zero_grad()  # finds: O008
        label.fill_(real_label)
        output = netD(fake)
        errG = criterion(output, label)  # finds: L001
        errG.backward()  # finds: L010
        optimizerG.step()  # finds: O007
        print("[%d/%d] Loss_D: %.4f Loss_G: %.4f" % (epoch, i, errD.item(), errG.item()))  # finds: D020
        if i % 100 == 0:
            vutils.save_image(real_cpu, "real_samples.png", normalize=True)
            fake = netG(fixed_noise)
            vutils.save_image(fake.detach(), "fake_samples_epoch_%03d.png" % epoch, normalize=True)

    torch.save(netG.state_dict(), "netG_epoch_%d.pth" % epoch)
    torch.save(netD.state_dict(), "netD_epoch_%d.pth" % epoch)
