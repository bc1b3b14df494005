"""CycleGAN with PyTorch."""
import argparse
import itertools

import torch
import torchvision.transforms as transforms
from PIL import Image
from torch.utils.data import DataLoader

from datasets import ImageDataset
from models import Discriminator, Generator
from utils import LambdaLR, Logger, ReplayBuffer, weights_init_normal

parser = argparse.ArgumentParser()
parser.add_argument("--epoch", type=int, default=0)
parser.add_argument("--n_epochs", type=int, default=200)
parser.add_argument("--batchSize", type=int, default=1)
parser.add_argument("--dataroot", type=str, default="datasets/horse2zebra/")
parser.add_argument("--lr", type=float, default=0.0002)
parser.add_argument("--decay_epoch", type=int, default=100)
parser.add_argument("--size", type=int, default=256)
parser.add_argument("--cuda", action="store_true")
parser.add_argument("--n_cpu", type=int, default=8)
opt = parser.parse_args()

netG_A2B = Generator(3, 3)
netG_B2A = Generator(3, 3)
netD_A = Discriminator(3)
netD_B = Discriminator(3)

if opt.cuda:
    netG_A2B.cuda()
    netG_B2A.cuda()
    netD_A.cuda()
    netD_B.cuda()

netG_A2B.apply(weights_init_normal)
netD_A.apply(weights_init_normal)

criterion_GAN = torch.nn.MSELoss()
criterion_cycle = torch.nn.L1Loss()
criterion_identity = torch.nn.L1Loss()

optimizer_G = torch.optim.Adam(itertools.chain(netG_A2B.parameters(), netG_B2A.parameters()), lr=opt.lr, betas=(0.5, 0.999))
optimizer_D_A = torch.optim.Adam(netD_A.parameters(), lr=opt.lr, betas=(0.5, 0.999))  # finds: O014
optimizer_D_B = torch.optim.Adam(netD_B.parameters(), lr=opt.lr, betas=(0.5, 0.999))  # finds: O014

lr_scheduler_G = torch.optim.lr_scheduler.LambdaLR(optimizer_G, lr_lambda=LambdaLR(opt.n_epochs, opt.epoch, opt.decay_epoch).step)
lr_scheduler_D_A = torch.optim.lr_scheduler.LambdaLR(optimizer_D_A, lr_lambda=LambdaLR(opt.n_epochs, opt.epoch, opt.decay_epoch).step)

Tensor = torch.cuda.FloatTensor if opt.cuda else torch.Tensor
target_real = Tensor(opt.batchSize).fill_(1.0)
target_fake = Tensor(opt.batchSize).fill_(0.0)
fake_A_buffer = ReplayBuffer()
fake_B_buffer = ReplayBuffer()

transforms_ = [
    transforms.Resize(int(opt.size * 1.12), Image.BICUBIC),
    transforms.RandomCrop(opt.size),
    transforms.RandomHorizontalFlip(),
    transforms.ToTensor(),
]
dataloader = DataLoader(ImageDataset(opt.dataroot, transforms_=transforms_, unaligned=True), batch_size=opt.batchSize, shuffle=True, num_workers=opt.n_cpu)  # finds: B010
logger = Logger(opt.n_epochs, len(dataloader))

for epoch in range(opt.epoch, opt.n_epochs):
    for i, batch in enumerate(dataloader):
        real_A = batch["A"]
        real_B = batch["B"]
        optimizer_G.zero_grad()  # finds: O008
        same_B = netG_A2B(real_B)
        loss_identity_B = criterion_identity(same_B, real_B) * 5.0  # finds: L001
        fake_B = netG_A2B(real_A)
        pred_fake = netD_B(fake_B)
        loss_GAN_A2B = criterion_GAN(pred_fake, target_real)  # finds: L001
        recovered_A = netG_B2A(fake_B)
        loss_cycle_ABA = criterion_cycle(recovered_A, real_A) * 10.0  # finds: L001
        loss_G = loss_identity_B + loss_GAN_A2B + loss_cycle_ABA
        loss_G.backward()  # finds: L010
        optimizer_G.step()  # finds: O007

        optimizer_D_A.zero_grad()  # finds: O008
        pred_real = netD_A(real_A)
        loss_D_real = criterion_GAN(pred_real, target_real)  # finds: L001
        fake_A = fake_A_buffer.push_and_pop(netG_B2A(real_B))
        pred_fake = netD_A(fake_A.detach())
        loss_D_fake = criterion_GAN(pred_fake, target_fake)  # finds: L001
        loss_D_A = (loss_D_real + loss_D_fake) * 0.5
        loss_D_A.backward()  # finds: L010
        optimizer_D_A.step()  # finds: O007

        optimizer_D_B.zero_grad()  # finds: O008
        loss_D_B = criterion_GAN(netD_B(real_B), target_real)  # finds: L001
        loss_D_B.backward()  # finds: L010
        optimizer_D_B.step()  # finds: O007
        logger.log({"loss_G": loss_G, "loss_D": (loss_D_A + loss_D_B)}, images={"real_A": real_A, "fake_B": fake_B})

    lr_scheduler_G.step()  # finds: O013
    lr_scheduler_D_A.step()  # finds: O013
    torch.save(netG_A2B.state_dict(), "output/netG_A2B.pth")
    torch.save(netD_A.state_dict(), "output/netD_A.pth")
