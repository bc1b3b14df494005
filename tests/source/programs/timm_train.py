#!/usr/bin/env python3
"""ImageNet Training Script in the style of timm."""
import argparse
import logging
import time
from collections import OrderedDict
from contextlib import suppress

import torch
import torch.nn as nn
from timm import utils
from timm.data import Mixup, create_dataset, create_loader, resolve_data_config
from timm.loss import LabelSmoothingCrossEntropy, SoftTargetCrossEntropy
from timm.models import create_model, model_parameters
from timm.optim import create_optimizer_v2, optimizer_kwargs
from timm.scheduler import create_scheduler_v2, scheduler_kwargs
from timm.utils import NativeScaler
from torch.nn.parallel import DistributedDataParallel as NativeDDP

_logger = logging.getLogger("train")
parser = argparse.ArgumentParser(description="PyTorch ImageNet Training")
parser.add_argument("--data-dir", metavar="DIR")
parser.add_argument("--model", default="resnet50", type=str)
parser.add_argument("--batch-size", type=int, default=128)
parser.add_argument("--epochs", type=int, default=300)
parser.add_argument("--clip-grad", type=float, default=None)
parser.add_argument("--amp", action="store_true", default=False)
parser.add_argument("--log-interval", type=int, default=50)
parser.add_argument("--smoothing", type=float, default=0.1)
parser.add_argument("--mixup", type=float, default=0.0)


def main():
    args = parser.parse_args()
    args.distributed = False
    device = utils.init_distributed_device(args)
    model = create_model(args.model, pretrained=False, num_classes=1000)
    data_config = resolve_data_config(vars(args), model=model)
    model.to(device=device)
    optimizer = create_optimizer_v2(model, **optimizer_kwargs(cfg=args))
    amp_autocast = suppress
    loss_scaler = None
    if args.amp:
        amp_autocast = torch.cuda.amp.autocast
        loss_scaler = NativeScaler()  # finds: O010
    if args.distributed:
        model = NativeDDP(model, device_ids=[device])  # finds: D012
    dataset_train = create_dataset("", root=args.data_dir, split="train", is_training=True)
    dataset_eval = create_dataset("", root=args.data_dir, split="validation")
    mixup_fn = Mixup(mixup_alpha=args.mixup, num_classes=1000) if args.mixup > 0 else None
    loader_train = create_loader(dataset_train, input_size=data_config["input_size"], batch_size=args.batch_size, is_training=True)  # finds: B010
    loader_eval = create_loader(dataset_eval, input_size=data_config["input_size"], batch_size=args.batch_size)  # finds: B010
    train_loss_fn = SoftTargetCrossEntropy() if mixup_fn else LabelSmoothingCrossEntropy(smoothing=args.smoothing)
    validate_loss_fn = nn.CrossEntropyLoss().to(device=device)
    lr_scheduler, num_epochs = create_scheduler_v2(optimizer, **scheduler_kwargs(args), updates_per_epoch=len(loader_train))  # finds: B016
    for epoch in range(num_epochs):
        train_metrics = train_one_epoch(
            epoch, model, loader_train, optimizer, train_loss_fn, args, lr_scheduler, amp_autocast, loss_scaler, mixup_fn
        )
        eval_metrics = validate(model, loader_eval, validate_loss_fn, args)
        if lr_scheduler is not None:
            lr_scheduler.step(epoch + 1, eval_metrics["top1"])  # finds: O013
        _logger.info("%s %s", train_metrics, eval_metrics)


def train_one_epoch(epoch, model, loader, optimizer, loss_fn, args, lr_scheduler, amp_autocast, loss_scaler, mixup_fn):
    losses_m = utils.AverageMeter()
    model.train()
    num_updates = epoch * len(loader)
    for batch_idx, (input, target) in enumerate(loader):
        input, target = input.cuda(), target.cuda()  # finds: D013
        if mixup_fn is not None:
            input, target = mixup_fn(input, target)
        with amp_autocast():  # finds: P013
            output = model(input)
            loss = loss_fn(output, target)  # finds: L001
        losses_m.update(loss.item(), input.size(0))  # finds: D020
        optimizer.zero_grad()  # finds: O008
        if loss_scaler is not None:
            loss_scaler(loss, optimizer, clip_grad=args.clip_grad, parameters=model_parameters(model))  # finds: L010
        else:
            loss.backward()  # finds: L010
            if args.clip_grad is not None:
                utils.dispatch_clip_grad(model_parameters(model), value=args.clip_grad)  # finds: O009
            optimizer.step()  # finds: O007
        torch.cuda.synchronize()  # finds: D013
        num_updates += 1
        if batch_idx % args.log_interval == 0:
            _logger.info("Train: {} Loss: {:.4f}".format(epoch, losses_m.avg))
        if lr_scheduler is not None:
            lr_scheduler.step_update(num_updates=num_updates, metric=losses_m.avg)  # finds: O013
    return OrderedDict([("loss", losses_m.avg)])


def validate(model, loader, loss_fn, args):
    top1_m = utils.AverageMeter()
    model.eval()  # finds: D014
    end = time.time()
    with torch.no_grad():
        for batch_idx, (input, target) in enumerate(loader):
            input = input.cuda()  # finds: D013
            target = target.cuda()  # finds: D013
            output = model(input)
            acc1, acc5 = utils.accuracy(output, target, topk=(1, 5))
            top1_m.update(acc1.item(), output.size(0))  # finds: D020
    _logger.info("%.3f", time.time() - end)
    return OrderedDict([("top1", top1_m.avg)])


if __name__ == "__main__":
    main()
