"""Fine-tuning Mask R-CNN, with the engine of torchvision's references."""
import math
import sys

import torch
import torchvision
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor

import utils
from penn_fudan import PennFudanDataset, get_transform


def train_one_epoch(model, optimizer, data_loader, device, epoch, print_freq, scaler=None):
    model.train()
    metric_logger = utils.MetricLogger(delimiter="  ")
    lr_scheduler = None
    if epoch == 0:
        warmup_iters = min(1000, len(data_loader) - 1)  # finds: B016
        lr_scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.001, total_iters=warmup_iters)
    for images, targets in metric_logger.log_every(data_loader, print_freq, "Epoch"):
        images = list(image.to(device) for image in images)
        targets = [{k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in t.items()} for t in targets]
        with torch.cuda.amp.autocast(enabled=scaler is not None):  # finds: P013
            loss_dict = model(images, targets)
            losses = sum(loss for loss in loss_dict.values())  # finds: L001
        loss_dict_reduced = utils.reduce_dict(loss_dict)
        losses_reduced = sum(loss for loss in loss_dict_reduced.values())
        loss_value = losses_reduced.item()  # finds: D020
        if not math.isfinite(loss_value):
            print(f"Loss is {loss_value}, stopping training")
            sys.exit(1)
        optimizer.zero_grad()  # finds: O008
        if scaler is not None:
            scaler.scale(losses).backward()  # finds: L010
            scaler.step(optimizer)  # finds: O007
            scaler.update()  # finds: O010
        else:
            losses.backward()  # finds: L010
            optimizer.step()  # finds: O007
        if lr_scheduler is not None:
            lr_scheduler.step()  # finds: O013
        metric_logger.update(loss=losses_reduced, **loss_dict_reduced)
        metric_logger.update(lr=optimizer.param_groups[0]["lr"])
    return metric_logger


@torch.inference_mode()
def evaluate(model, data_loader, device, evaluator):
    cpu_device = torch.device("cpu")
    model.eval()  # finds: D014
    for images, targets in data_loader:
        images = list(img.to(device) for img in images)
        outputs = model(images)
        outputs = [{k: v.to(cpu_device) for k, v in t.items()} for t in outputs]  # finds: D020
        res = {target["image_id"]: output for target, output in zip(targets, outputs)}
        evaluator.update(res)
    return evaluator


def main():
    device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
    dataset = PennFudanDataset("data/PennFudanPed", get_transform(train=True))
    dataset_test = PennFudanDataset("data/PennFudanPed", get_transform(train=False))
    data_loader = torch.utils.data.DataLoader(dataset, batch_size=2, shuffle=True, collate_fn=utils.collate_fn)  # finds: B010
    data_loader_test = torch.utils.data.DataLoader(dataset_test, batch_size=1, shuffle=False, collate_fn=utils.collate_fn)  # finds: B014
    model = torchvision.models.detection.fasterrcnn_resnet50_fpn(weights="DEFAULT")
    in_features = model.roi_heads.box_predictor.cls_score.in_features
    model.roi_heads.box_predictor = FastRCNNPredictor(in_features, 2)
    model.to(device)
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(params, lr=0.005, momentum=0.9, weight_decay=0.0005)
    lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.1)
    for epoch in range(2):
        train_one_epoch(model, optimizer, data_loader, device, epoch, print_freq=10)
        lr_scheduler.step()  # finds: O013
        evaluate(model, data_loader_test, device, utils.Evaluator())


main()
