"""SimCLR: contrastive learning of visual representations."""
import logging
import os

import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
import torch.nn.functional as F
from torch.cuda.amp import GradScaler, autocast
from torch.utils.tensorboard import SummaryWriter
from torchvision import datasets, models, transforms
from tqdm import tqdm

torch.manual_seed(0)


class ContrastiveLearningViewGenerator(object):
    def __init__(self, base_transform, n_views=2):
        self.base_transform = base_transform
        self.n_views = n_views

    def __call__(self, x):
        return [self.base_transform(x) for i in range(self.n_views)]


class ResNetSimCLR(nn.Module):
    def __init__(self, base_model, out_dim):
        super(ResNetSimCLR, self).__init__()
        self.backbone = models.resnet18(num_classes=out_dim)
        dim_mlp = self.backbone.fc.in_features
        self.backbone.fc = nn.Sequential(nn.Linear(dim_mlp, dim_mlp), nn.ReLU(), self.backbone.fc)

    def forward(self, x):
        return self.backbone(x)


class SimCLR(object):
    def __init__(self, *args, **kwargs):
        self.args = kwargs["args"]
        self.model = kwargs["model"].to(self.args.device)
        self.optimizer = kwargs["optimizer"]
        self.scheduler = kwargs["scheduler"]
        self.writer = SummaryWriter()
        self.criterion = torch.nn.CrossEntropyLoss().to(self.args.device)

    def info_nce_loss(self, features):
        labels = torch.cat([torch.arange(self.args.batch_size) for i in range(self.args.n_views)], dim=0)
        labels = (labels.unsqueeze(0) == labels.unsqueeze(1)).float()
        labels = labels.to(self.args.device)
        features = F.normalize(features, dim=1)
        similarity_matrix = torch.matmul(features, features.T)
        mask = torch.eye(labels.shape[0], dtype=torch.bool).to(self.args.device)
        labels = labels[~mask].view(labels.shape[0], -1)
        similarity_matrix = similarity_matrix[~mask].view(similarity_matrix.shape[0], -1)
        positives = similarity_matrix[labels.bool()].view(labels.shape[0], -1)  # finds: C002
        negatives = similarity_matrix[~labels.bool()].view(similarity_matrix.shape[0], -1)  # finds: C002
        logits = torch.cat([positives, negatives], dim=1)
        labels = torch.zeros(logits.shape[0], dtype=torch.long).to(self.args.device)
        return logits / self.args.temperature, labels

    def train(self, train_loader):
        scaler = GradScaler(enabled=self.args.fp16_precision)  # finds: O010
        n_iter = 0
        for epoch_counter in range(self.args.epochs):
            for images, _ in tqdm(train_loader):
                images = torch.cat(images, dim=0)
                images = images.to(self.args.device)
                with autocast(enabled=self.args.fp16_precision):  # finds: P013
                    features = self.model(images)
                    logits, labels = self.info_nce_loss(features)
                    loss = self.criterion(logits, labels)  # finds: L001
                self.optimizer.zero_grad()  # finds: O008
                scaler.scale(loss).backward()  # finds: L010
                scaler.step(self.optimizer)  # finds: O007
                scaler.update()  # finds: O010
                if n_iter % self.args.log_every_n_steps == 0:
                    self.writer.add_scalar("loss", loss, global_step=n_iter)
                    self.writer.add_scalar("learning_rate", self.scheduler.get_lr()[0], global_step=n_iter)
                n_iter += 1
            if epoch_counter >= 10:
                self.scheduler.step()  # finds: O013
            logging.debug(f"Epoch: {epoch_counter}\tLoss: {loss}")
        torch.save(
            {"epoch": self.args.epochs, "state_dict": self.model.state_dict(), "optimizer": self.optimizer.state_dict()},
            os.path.join(self.writer.log_dir, "checkpoint.pth.tar"),
        )


def main(args):
    args.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cudnn.benchmark = True
    data_transforms = transforms.Compose(
        [
            transforms.RandomResizedCrop(size=32),
            transforms.RandomHorizontalFlip(),
            transforms.RandomGrayscale(p=0.2),
            transforms.ToTensor(),
        ]
    )
    train_dataset = datasets.CIFAR10("data", transform=ContrastiveLearningViewGenerator(data_transforms), download=True)
    train_loader = torch.utils.data.DataLoader(  # finds: B014
        train_dataset, batch_size=args.batch_size, shuffle=True, num_workers=args.workers, pin_memory=True, drop_last=True
    )
    model = ResNetSimCLR(base_model=args.arch, out_dim=args.out_dim)
    optimizer = torch.optim.Adam(model.parameters(), args.lr, weight_decay=args.weight_decay)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=len(train_loader), eta_min=0, last_epoch=-1)  # finds: B016
    with torch.cuda.device(args.gpu_index):
        simclr = SimCLR(model=model, optimizer=optimizer, scheduler=scheduler, args=args)
        simclr.train(train_loader)
