import torch
from torch import nn, optim
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

from nets import Discriminator, Generator

device = "cuda:0"  # finds: D013
data = datasets.CelebA("data", transform=transforms.Compose([transforms.RandomHorizontalFlip(), transforms.ToTensor()]))
loader = DataLoader(data, batch_size=64, shuffle=True, drop_last=True)  # finds: B014, B017
G = nn.DataParallel(Generator()).to(device)  # finds: D012
D = nn.DataParallel(Discriminator()).to(device)  # finds: D012
g_opt = optim.Adam(G.parameters(), lr=1e-4, betas=(0.0, 0.9))
d_opt = optim.Adam(D.parameters(), lr=4e-4, betas=(0.0, 0.9))  # finds: O014
step = 0
while step < 100000:
    for real, _ in loader:
        real = real.to(device)
        z = torch.randn(64, 128, device=device)
        fake = G(z)
        d_loss = torch.relu(1 - D(real)).mean() + torch.relu(1 + D(fake.detach())).mean()  # finds: L001
        d_opt.zero_grad()  # finds: O008
        d_loss.backward(retain_graph=True)  # finds: L010, L012
        d_opt.step()  # finds: O007
        g_loss = -D(fake).mean()  # finds: L001
        g_opt.zero_grad()  # finds: O008
        g_loss.backward()  # finds: L010
        g_opt.step()  # finds: O007
        step += 1
        if step >= 100000:
            break
    print(step, d_loss.item(), g_loss.item())
