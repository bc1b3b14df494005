"""A GAN with manual optimisation in Lightning."""
import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import MNIST


class MNISTDataModule(L.LightningDataModule):
    def __init__(self, batch_size=256, num_workers=4):
        super().__init__()
        self.batch_size, self.num_workers = batch_size, num_workers

    def setup(self, stage=None):
        self.mnist_train = MNIST(".", train=True, transform=transforms.ToTensor())
        self.mnist_val = MNIST(".", train=False, transform=transforms.ToTensor())

    def train_dataloader(self):
        return DataLoader(self.mnist_train, batch_size=self.batch_size, num_workers=self.num_workers)  # finds: B010

    def val_dataloader(self):
        return DataLoader(self.mnist_val, batch_size=self.batch_size, num_workers=self.num_workers)  # finds: B010


class Net(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(inputs, 128), nn.LeakyReLU(0.2, inplace=True), nn.Linear(128, outputs))

    def forward(self, x):
        return self.model(x.view(x.size(0), -1))


class GAN(L.LightningModule):
    def __init__(self, latent_dim=100, lr=0.0002):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.generator = Net(latent_dim, 784)
        self.discriminator = Net(784, 1)

    def forward(self, z):
        return self.generator(z)

    def adversarial_loss(self, y_hat, y):
        return F.binary_cross_entropy_with_logits(y_hat, y)

    def training_step(self, batch):
        imgs, _ = batch
        optimizer_g, optimizer_d = self.optimizers()
        z = torch.randn(imgs.shape[0], self.hparams.latent_dim)
        z = z.type_as(imgs)
        self.toggle_optimizer(optimizer_g)
        generated = self(z)
        valid = torch.ones(imgs.size(0), 1).type_as(imgs)
        g_loss = self.adversarial_loss(self.discriminator(generated), valid)  # finds: L001
        self.log("g_loss", g_loss, prog_bar=True)
        self.manual_backward(g_loss)  # finds: L010
        optimizer_g.step()  # finds: O007
        optimizer_g.zero_grad()  # finds: O008
        self.untoggle_optimizer(optimizer_g)
        self.toggle_optimizer(optimizer_d)
        real_loss = self.adversarial_loss(self.discriminator(imgs), valid)  # finds: L001
        fake = torch.zeros(imgs.size(0), 1).type_as(imgs)
        fake_loss = self.adversarial_loss(self.discriminator(self(z).detach()), fake)  # finds: L001
        d_loss = (real_loss + fake_loss) / 2
        self.manual_backward(d_loss)  # finds: L010
        optimizer_d.step()  # finds: O007
        optimizer_d.zero_grad()  # finds: O008
        self.untoggle_optimizer(optimizer_d)

    def configure_optimizers(self):
        lr = self.hparams.lr
        opt_g = torch.optim.Adam(self.generator.parameters(), lr=lr, betas=(0.5, 0.999))
        opt_d = torch.optim.Adam(self.discriminator.parameters(), lr=lr, betas=(0.5, 0.999))  # finds: O014
        return [opt_g, opt_d], []


if __name__ == "__main__":
    dm = MNISTDataModule()
    model = GAN()
    trainer = L.Trainer(accelerator="auto", devices=1, max_epochs=5)
    trainer.fit(model, dm)
