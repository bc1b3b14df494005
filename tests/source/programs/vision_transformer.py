import argparse

import torch
import torch.nn as nn
import torch.optim as optim
import torchvision
from torchvision import transforms


class PatchExtractor(nn.Module):
    def __init__(self, patch_size=4):
        super().__init__()
        self.patch_size = patch_size

    def forward(self, input_data):
        batch_size, channels, height, width = input_data.size()
        assert height % self.patch_size == 0 and width % self.patch_size == 0
        patches = input_data.unfold(2, self.patch_size, self.patch_size).unfold(3, self.patch_size, self.patch_size)
        return patches.permute(0, 2, 3, 1, 4, 5).contiguous().view(batch_size, -1, channels * self.patch_size**2)


class InputEmbedding(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.device = args.device
        self.linear = nn.Linear(48, 128)
        self.class_token = nn.Parameter(torch.randn(args.batch_size, 1, 128))
        self.pos_embedding = nn.Parameter(torch.randn(args.batch_size, 1, 128))
        self.patchify = PatchExtractor()

    def forward(self, input_data):
        input_data = input_data.to(self.device)
        patches = self.linear(self.patchify(input_data))
        b, n, _ = patches.shape
        patches = torch.cat((self.class_token[:b], patches), dim=1)
        return patches + self.pos_embedding.repeat(1, n + 1, 1)[:b]


class ViT(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.embedding = InputEmbedding(args)
        layer = nn.TransformerEncoderLayer(128, 8, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 4)
        self.classifier = nn.Linear(128, 10)

    def forward(self, x):
        h = self.encoder(self.embedding(x))
        return self.classifier(h[:, 0])


def train(args):
    transform = transforms.Compose([transforms.RandomCrop(32, padding=4), transforms.ToTensor()])
    train_data = torchvision.datasets.CIFAR10("./data", train=True, download=True, transform=transform)
    valid_data = torchvision.datasets.CIFAR10("./data", train=False, transform=transforms.ToTensor())
    train_loader = torch.utils.data.DataLoader(train_data, shuffle=True, batch_size=args.batch_size, drop_last=True)  # finds: B014, B017
    valid_loader = torch.utils.data.DataLoader(valid_data, batch_size=args.batch_size, drop_last=True)  # finds: B014
    model = ViT(args).to(args.device)
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        total_loss = 0
        model.train()
        for img, label in train_loader:
            optimizer.zero_grad()  # finds: O008
            logits = model(img)
            loss = criterion(logits, label.to(args.device))  # finds: L001
            loss.backward()  # finds: L010
            optimizer.step()  # finds: O007
            total_loss += loss.detach().cpu().item()  # finds: D020
        model.eval()  # finds: D014
        correct = 0
        for img, label in valid_loader:
            with torch.no_grad():
                correct += (model(img).argmax(1) == label).sum().item()  # finds: D020
        print("epoch", epoch, total_loss / len(train_loader), correct)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--no-cuda", action="store_true")
    args = parser.parse_args()
    args.device = torch.device("cuda" if not args.no_cuda and torch.cuda.is_available() else "cpu")
    train(args)
