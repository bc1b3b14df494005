"""A variational autoencoder trained by Ignite's supervised trainer and a step of its own."""
from argparse import ArgumentParser

import torch
import torch.nn.functional as F
from ignite.engine import Engine, Events
from ignite.handlers import EarlyStopping, ModelCheckpoint, TerminateOnNan, Timer
from ignite.metrics import RunningAverage
from torch import nn, optim
from torch.utils.data import DataLoader
from torchvision.datasets import MNIST
from torchvision.transforms import ToTensor
from torchvision.utils import save_image


class VAE(nn.Module):
    def __init__(self, latent=20):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, 400), nn.ReLU())
        self.mu, self.logvar = nn.Linear(400, latent), nn.Linear(400, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, 400), nn.ReLU(), nn.Linear(400, 784), nn.Sigmoid())

    def reparameterize(self, mu, logvar):
        if self.training:
            std = torch.exp(0.5 * logvar)
            eps = torch.randn_like(std)
            return mu + eps * std
        return mu

    def forward(self, x):
        h = self.encoder(x.view(-1, 784))
        mu, logvar = self.mu(h), self.logvar(h)
        return self.decoder(self.reparameterize(mu, logvar)), mu, logvar


class ELBO:
    def __init__(self, beta=0.0):
        self.beta = beta
        self.history = []

    def __call__(self, output, x):
        recon, mu, logvar = output
        bce = F.binary_cross_entropy(recon, x.view(-1, 784), reduction="sum")
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        assert not torch.isnan(kld), "diverged"  # finds: C001
        self.history.append(float(kld))  # finds: C001
        return bce + self.beta * kld


def run(args):
    device = torch.device("cuda" if torch.cuda.is_available() and not args.no_cuda else "cpu")
    pin = {"num_workers": 2, "pin_memory": True} if device.type == "cuda" else {}
    train_loader = DataLoader(MNIST("data", train=True, transform=ToTensor()), args.batch_size, shuffle=True, **pin)  # finds: B010
    test_loader = DataLoader(MNIST("data", train=False, transform=ToTensor()), args.batch_size, **pin)  # finds: B010
    model = VAE().to(device)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.5)
    elbo = ELBO()

    def process_function(engine, batch):
        model.train()
        optimizer.zero_grad()  # finds: O008
        x, _ = batch
        x = x.to(device)
        output = model(x)
        loss = elbo(output, x)  # finds: L001
        loss.backward()  # finds: L010
        optimizer.step()  # finds: O007
        return loss.item()  # finds: D020

    def evaluate_function(engine, batch):
        model.eval()  # finds: D014
        with torch.no_grad():
            x, _ = batch
            x = x.to(device)
            return elbo(model(x), x).item() / len(x)  # finds: D020

    trainer = Engine(process_function)
    evaluator = Engine(evaluate_function)
    RunningAverage(output_transform=lambda x: x).attach(trainer, "loss")
    RunningAverage(output_transform=lambda x: x).attach(evaluator, "loss")
    Timer(average=True).attach(trainer)
    trainer.add_event_handler(Events.ITERATION_COMPLETED, TerminateOnNan())
    evaluator.add_event_handler(Events.COMPLETED, EarlyStopping(5, lambda e: -e.state.metrics["loss"], trainer))
    trainer.add_event_handler(Events.EPOCH_COMPLETED, ModelCheckpoint("vae", "best", n_saved=1), {"model": model})
    fixed = torch.randn(64, 20).to(device)

    @trainer.on(Events.EPOCH_COMPLETED)
    def anneal(engine):
        elbo.beta = min(1.0, engine.state.epoch / 10)  # finds: C020
        scheduler.step()  # finds: O013

    @trainer.on(Events.EPOCH_COMPLETED)
    def validate(engine):
        evaluator.run(test_loader)
        print(f"epoch {engine.state.epoch} loss {evaluator.state.metrics['loss']:.3f}")

    @trainer.on(Events.EPOCH_COMPLETED(every=5))
    def sample(engine):
        model.eval()  # finds: D014
        with torch.no_grad():
            save_image(model.decoder(fixed).view(64, 1, 28, 28).cpu(), f"samples_{engine.state.epoch}.png")

    trainer.run(train_loader, max_epochs=args.epochs)


if __name__ == "__main__":
    parser = ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--no_cuda", action="store_true")
    run(parser.parse_args())
