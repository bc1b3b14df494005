"""Classification of pets, after the vision example of accelerate, with an evaluation of all processes."""
import argparse
import os
import re

import numpy as np
import PIL
import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from timm import create_model
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import Compose, RandomResizedCrop, Resize, ToTensor


def extract_label(name):
    return re.search(r"^(.*)_\d+\.jpg$", name.split(os.path.sep)[-1]).groups()[0]


class PetsDataset(Dataset):
    def __init__(self, names, transform=None, label_to_id=None):
        self.names = names
        self.transform = transform
        self.label_to_id = label_to_id

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        image = PIL.Image.open(self.names[i]).convert("RGB")
        if self.transform is not None:
            image = self.transform(image)
        label = extract_label(self.names[i])
        return {"image": image, "label": self.label_to_id[label] if self.label_to_id else label}


class Meter:
    def __init__(self, momentum=0.98):
        self.momentum, self.value = momentum, None

    def update(self, loss):
        value = float(loss)  # finds: D020
        self.value = value if self.value is None else self.momentum * self.value + (1 - self.momentum) * value


def evaluate(accelerator, model, loader):
    model.eval()  # finds: D014
    accurate, count = 0, 0
    for batch in loader:
        batch = {k: v.to(accelerator.device) for k, v in batch.items()}
        with torch.no_grad():
            predictions = model(batch["image"]).argmax(dim=-1)
        predictions, references = accelerator.gather_for_metrics((predictions, batch["label"]))
        accurate += (predictions == references).sum().item()  # finds: D020
        count += references.shape[0]
    return accurate / count


def train(config, args):
    kwargs = DistributedDataParallelKwargs(find_unused_parameters=True)
    accelerator = Accelerator(cpu=args.cpu, kwargs_handlers=[kwargs])
    names = [os.path.join(args.data_dir, f) for f in os.listdir(args.data_dir) if f.endswith(".jpg")]
    id_to_label = sorted({extract_label(f) for f in names})
    label_to_id = {label: i for i, label in enumerate(id_to_label)}
    np.random.seed(config["seed"])
    order = np.random.permutation(len(names))
    cut = int(0.8 * len(names))
    size = config["image_size"]
    train_set = PetsDataset([names[i] for i in order[:cut]], Compose([RandomResizedCrop(size, (0.5, 1.0)), ToTensor()]), label_to_id)
    eval_set = PetsDataset([names[i] for i in order[cut:]], Compose([Resize((size, size)), ToTensor()]), label_to_id)
    train_loader = DataLoader(train_set, shuffle=True, batch_size=config["batch_size"], num_workers=4)  # finds: B010
    eval_loader = DataLoader(eval_set, shuffle=False, batch_size=config["batch_size"], num_workers=4)  # finds: B010
    model = create_model("resnet50d", pretrained=True, num_classes=len(label_to_id))
    for p in model.parameters():
        p.requires_grad = False
    for p in model.get_classifier().parameters():
        p.requires_grad = True
    mean = torch.tensor(model.default_cfg["mean"])[None, :, None, None].to(accelerator.device)
    std = torch.tensor(model.default_cfg["std"])[None, :, None, None].to(accelerator.device)
    optimizer = torch.optim.Adam(params=model.parameters(), lr=config["lr"] / 25)
    scheduler = OneCycleLR(optimizer, max_lr=config["lr"], epochs=config["num_epochs"], steps_per_epoch=len(train_loader))  # finds: B016
    model, optimizer, train_loader, eval_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, eval_loader, scheduler
    )
    meter = Meter()
    for epoch in range(config["num_epochs"]):
        model.train()
        for step, batch in enumerate(train_loader):
            batch = {k: v.to(accelerator.device) for k, v in batch.items()}
            inputs = (batch["image"] - mean) / std
            with accelerator.autocast():  # finds: P013
                outputs = model(inputs)
                loss = torch.nn.functional.cross_entropy(outputs, batch["label"])  # finds: L001
            accelerator.backward(loss)  # finds: L010
            if step % config["accumulation"] != 0:  # finds: O011
                continue
            optimizer.step()  # finds: O007
            scheduler.step()  # finds: O013
            optimizer.zero_grad()  # finds: O008
            meter.update(loss)
        accelerator.print(f"epoch {epoch}: {100 * evaluate(accelerator, model, eval_loader):.2f}, loss {meter.value}")
        if accelerator.is_main_process:
            torch.save(accelerator.unwrap_model(model), f"epoch_{epoch}.pt")  # finds: K005


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--cpu", action="store_true")
    args = parser.parse_args()
    train({"lr": 3e-2, "num_epochs": 3, "seed": 42, "batch_size": 64, "image_size": 224, "accumulation": 2}, args)


if __name__ == "__main__":
    main()
