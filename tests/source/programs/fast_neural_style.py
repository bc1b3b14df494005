import os
import time

import numpy as np
import torch
from torch.optim import Adam
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms


class Vgg16(torch.nn.Module):
    def __init__(self, requires_grad=False):
        super(Vgg16, self).__init__()
        features = models.vgg16(pretrained=True).features
        self.slice1 = torch.nn.Sequential()
        self.slice2 = torch.nn.Sequential()
        for x in range(4):
            self.slice1.add_module(str(x), features[x])
        for x in range(4, 9):
            self.slice2.add_module(str(x), features[x])
        if not requires_grad:
            for param in self.parameters():
                param.requires_grad = False

    def forward(self, X):
        h = self.slice1(X)
        h_relu1_2 = h
        h = self.slice2(h)
        return h_relu1_2, h


class TransformerNet(torch.nn.Module):
    def __init__(self):
        super(TransformerNet, self).__init__()
        self.conv1 = torch.nn.Conv2d(3, 32, 9, padding=4)
        self.in1 = torch.nn.InstanceNorm2d(32, affine=True)
        self.deconv = torch.nn.Conv2d(32, 3, 9, padding=4)

    def forward(self, X):
        return self.deconv(torch.relu(self.in1(self.conv1(X))))


def gram_matrix(y):
    (b, ch, h, w) = y.size()
    features = y.view(b, ch, w * h)
    return features.bmm(features.transpose(1, 2)) / (ch * h * w)


def normalize_batch(batch):
    mean = batch.new_tensor([0.485, 0.456, 0.406]).view(-1, 1, 1)
    std = batch.new_tensor([0.229, 0.224, 0.225]).view(-1, 1, 1)
    return (batch / 255.0 - mean) / std


def train(args):
    device = torch.device("cuda" if args.cuda else "cpu")
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    transform = transforms.Compose(
        [transforms.Resize(256), transforms.CenterCrop(256), transforms.ToTensor(), transforms.Lambda(lambda x: x.mul(255))]
    )
    train_dataset = datasets.ImageFolder(args.dataset, transform)
    train_loader = DataLoader(train_dataset, batch_size=args.batch_size)  # finds: B010
    transformer = TransformerNet().to(device)
    optimizer = Adam(transformer.parameters(), args.lr)
    mse_loss = torch.nn.MSELoss()
    vgg = Vgg16(requires_grad=False).to(device)
    style = args.style.repeat(args.batch_size, 1, 1, 1).to(device)
    gram_style = [gram_matrix(y) for y in vgg(normalize_batch(style))]

    for e in range(args.epochs):
        transformer.train()
        agg_content_loss = 0.0
        agg_style_loss = 0.0
        count = 0
        for batch_id, (x, _) in enumerate(train_loader):
            n_batch = len(x)
            count += n_batch
            optimizer.zero_grad()  # finds: O008
            x = x.to(device)
            y = transformer(x)
            y = normalize_batch(y)
            x = normalize_batch(x)
            features_y = vgg(y)
            features_x = vgg(x)
            content_loss = args.content_weight * mse_loss(features_y[1], features_x[1])  # finds: L001
            style_loss = 0.0
            for ft_y, gm_s in zip(features_y, gram_style):
                gm_y = gram_matrix(ft_y)
                style_loss += mse_loss(gm_y, gm_s[:n_batch, :, :])  # finds: L001
            style_loss *= args.style_weight
            total_loss = content_loss + style_loss
            total_loss.backward()  # finds: L010
            optimizer.step()  # finds: O007
            agg_content_loss += content_loss.item()  # finds: D020
            agg_style_loss += style_loss.item()  # finds: D020
            if (batch_id + 1) % args.log_interval == 0:
                print("{}\t[{}/{}]\tcontent: {:.6f}".format(time.ctime(), count, len(train_dataset), agg_content_loss))

    transformer.eval().cpu()
    save_model_path = os.path.join(args.save_model_dir, "epoch_" + str(args.epochs) + ".model")
    torch.save(transformer.state_dict(), save_model_path)
