import torch
from torch import nn
import poptorch

from torch.utils.data import TensorDataset


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.mean, self.logvar = nn.Linear(16, 8), nn.Linear(8, 2), nn.Linear(8, 2)
        self.decoder = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 16))

    def reparameterise(self, mean, logvar):
        std = torch.exp(0.5 * logvar)
        return mean + torch.randn_like(std) * std

    def forward(self, x):
        hidden = self.encoder(x).relu()
        mean, logvar = self.mean(hidden), self.logvar(hidden)
        out = self.decoder(self.reparameterise(mean, logvar))
        if not self.training:
            return out
        rebuilt = nn.functional.mse_loss(out, x, reduction="sum")
        divergence = -0.5 * torch.sum(1 + logvar - mean.pow(2) - logvar.exp())
        loss = (rebuilt + divergence) / x.shape[0]
        return out, poptorch.identity_loss(loss, reduction="none")


options = poptorch.Options()
loader = poptorch.DataLoader(options, TensorDataset(torch.randn(512, 16)), batch_size=8, drop_last=True)
model = VAE()
port = poptorch.trainingModel(model, options, poptorch.optim.Adam(model.parameters(), lr=1e-3))
for epoch in range(3):
    train_loss = 0.0
    for (x,) in loader:
        out, loss = port(x)
        train_loss += loss.item()
    print(epoch, train_loss / len(loader.dataset))
