from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2


class TileDataset(Dataset):
    def __init__(self, root, split, transform=None):
        self.paths = sorted((Path(root) / split).glob("*.npy"))
        self.labels = np.load(Path(root) / f"{split}_labels.npy")
        self.transform = transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        tile = torch.from_numpy(np.load(self.paths[i]).astype("float32"))
        if self.transform:
            tile = self.transform(tile)
        return tile, torch.from_numpy(self.labels[i]).float()


def make_loaders(root, batch_size, num_workers):
    augment = v2.Compose([v2.RandomHorizontalFlip(), v2.RandomVerticalFlip(), v2.RandomCrop(64)])
    train = DataLoader(TileDataset(root, "train", augment), batch_size, shuffle=True, num_workers=num_workers)  # finds: B010, B017
    val = DataLoader(TileDataset(root, "val"), batch_size, num_workers=num_workers)  # finds: B010
    return train, val
