import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader
from torchvision import datasets, transforms
from tqdm import tqdm

T = 1000
betas = torch.linspace(1e-4, 0.02, T)
alphas_cumprod = torch.cumprod(1.0 - betas, dim=0)


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, t):
        half = self.dim // 2
        freqs = torch.exp(-math.log(10000) * torch.arange(half) / half)  # finds: C011
        args = t[:, None].float() * freqs[None]
        return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)


class Denoiser(nn.Module):
    def __init__(self, ch=64):
        super().__init__()
        self.temb = TimeEmbedding(ch)
        self.inp = nn.Conv2d(1, ch, 3, padding=1)
        self.mid = nn.Conv2d(ch, ch, 3, padding=1)
        self.out = nn.Conv2d(ch, 1, 3, padding=1)

    def forward(self, x, t):
        h = F.silu(self.inp(x)) + self.temb(t)[:, :, None, None]
        h = F.silu(self.mid(h))
        return self.out(h)


class EMA:
    def __init__(self, model, decay=0.999):
        self.decay = decay
        self.shadow = copy.deepcopy(model)

    def update(self, model):
        with torch.no_grad():
            for s, p in zip(self.shadow.parameters(), model.parameters()):
                s.mul_(self.decay).add_(p, alpha=1 - self.decay)  # finds: D020


def q_sample(x0, t, noise):
    a = alphas_cumprod.to(x0.device)[t][:, None, None, None]
    return a.sqrt() * x0 + (1 - a).sqrt() * noise


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tf = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.5,), (0.5,))])
    loader = DataLoader(datasets.MNIST(".", download=True, transform=tf), 128, shuffle=True, drop_last=True)  # finds: B014
    model = Denoiser().to(device)
    ema = EMA(model)
    opt = torch.optim.Adam(model.parameters(), lr=2e-4)
    for epoch in range(50):
        pbar = tqdm(loader)
        for x, _ in pbar:
            x = x.to(device)
            t = torch.randint(0, T, (x.shape[0],), device=device)
            noise = torch.randn_like(x)
            pred = model(q_sample(x, t, noise), t)
            loss = F.mse_loss(pred, noise)  # finds: L001
            opt.zero_grad()  # finds: O008
            loss.backward()  # finds: L010
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # finds: O009
            opt.step()  # finds: O007
            ema.update(model)
            pbar.set_description(f"epoch {epoch} loss {loss.item():.4f}")  # finds: D020
        torch.save(ema.shadow.state_dict(), "ema.pt")


if __name__ == "__main__":
    main()
