"""Training of classification models, as in torchvision's references."""
import datetime
import os
import time

import torch
import torch.utils.data
import torchvision
import utils
from torch import nn
from torch.utils.data.dataloader import default_collate
from torchvision.transforms.functional import InterpolationMode


def train_one_epoch(model, criterion, optimizer, data_loader, device, epoch, args, model_ema=None, scaler=None):
    model.train()
    metric_logger = utils.MetricLogger(delimiter="  ")
    header = f"Epoch: [{epoch}]"
    for i, (image, target) in enumerate(metric_logger.log_every(data_loader, args.print_freq, header)):
        start_time = time.time()
        image, target = image.to(device), target.to(device)
        with torch.cuda.amp.autocast(enabled=scaler is not None):  # finds: P013
            output = model(image)
            loss = criterion(output, target)  # finds: L001
        optimizer.zero_grad()  # finds: O008
        if scaler is not None:
            scaler.scale(loss).backward()  # finds: L010
            if args.clip_grad_norm is not None:
                scaler.unscale_(optimizer)  # finds: O010
                nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad_norm)  # finds: O009
            scaler.step(optimizer)  # finds: O007
            scaler.update()  # finds: O010
        else:
            loss.backward()  # finds: L010
            if args.clip_grad_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad_norm)  # finds: O009
            optimizer.step()  # finds: O007
        if model_ema and i % args.model_ema_steps == 0:
            model_ema.update_parameters(model)
            if epoch < args.lr_warmup_epochs:
                model_ema.n_averaged.fill_(0)
        acc1, acc5 = utils.accuracy(output, target, topk=(1, 5))
        batch_size = image.shape[0]
        metric_logger.update(loss=loss.item(), lr=optimizer.param_groups[0]["lr"])  # finds: D020
        metric_logger.meters["acc1"].update(acc1.item(), n=batch_size)  # finds: D020
        metric_logger.meters["img/s"].update(batch_size / (time.time() - start_time))


def evaluate(model, criterion, data_loader, device, print_freq=100, log_suffix=""):
    model.eval()  # finds: D014
    metric_logger = utils.MetricLogger(delimiter="  ")
    num_processed_samples = 0
    with torch.inference_mode():
        for image, target in metric_logger.log_every(data_loader, print_freq, "Test:"):
            image = image.to(device, non_blocking=True)
            target = target.to(device, non_blocking=True)
            output = model(image)
            loss = criterion(output, target)
            acc1, acc5 = utils.accuracy(output, target, topk=(1, 5))
            metric_logger.update(loss=loss.item())  # finds: D020
            metric_logger.meters["acc1"].update(acc1.item(), n=image.shape[0])  # finds: D020
            num_processed_samples += image.shape[0]
    metric_logger.synchronize_between_processes()
    return metric_logger.acc1.global_avg


def load_data(traindir, valdir, args):
    dataset = torchvision.datasets.ImageFolder(traindir, torchvision.transforms.ToTensor())
    dataset_test = torchvision.datasets.ImageFolder(valdir, torchvision.transforms.ToTensor())
    if args.distributed:
        train_sampler = torch.utils.data.distributed.DistributedSampler(dataset)  # finds: B015
        test_sampler = torch.utils.data.distributed.DistributedSampler(dataset_test, shuffle=False)  # finds: B015
    else:
        train_sampler = torch.utils.data.RandomSampler(dataset)
        test_sampler = torch.utils.data.SequentialSampler(dataset_test)
    return dataset, dataset_test, train_sampler, test_sampler


def main(args):
    utils.init_distributed_mode(args)
    device = torch.device(args.device)
    dataset, dataset_test, train_sampler, test_sampler = load_data("train", "val", args)
    data_loader = torch.utils.data.DataLoader(  # finds: B010
        dataset, batch_size=args.batch_size, sampler=train_sampler, num_workers=args.workers, collate_fn=default_collate
    )
    data_loader_test = torch.utils.data.DataLoader(  # finds: B010
        dataset_test, batch_size=args.batch_size, sampler=test_sampler, num_workers=args.workers
    )
    model = torchvision.models.get_model(args.model, weights=args.weights, num_classes=1000)
    model.to(device)
    if args.distributed and args.sync_bn:
        model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)  # finds: D012
    criterion = nn.CrossEntropyLoss(label_smoothing=args.label_smoothing)
    parameters = utils.set_weight_decay(model, args.weight_decay)
    if args.opt == "sgd":
        optimizer = torch.optim.SGD(parameters, lr=args.lr, momentum=args.momentum, nesterov="nesterov" in args.opt)
    elif args.opt == "rmsprop":
        optimizer = torch.optim.RMSprop(parameters, lr=args.lr, momentum=args.momentum, eps=0.0316, alpha=0.9)
    else:
        optimizer = torch.optim.AdamW(parameters, lr=args.lr, weight_decay=args.weight_decay)
    scaler = torch.cuda.amp.GradScaler() if args.amp else None  # finds: O010
    main_lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=args.lr_step_size, gamma=args.lr_gamma)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.01, total_iters=args.lr_warmup_epochs)
    lr_scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, main_lr_scheduler], milestones=[5])
    model_without_ddp = model
    if args.distributed:
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[args.gpu])  # finds: D012
        model_without_ddp = model.module
    start_time = time.time()
    for epoch in range(args.start_epoch, args.epochs):
        if args.distributed:
            train_sampler.set_epoch(epoch)
        train_one_epoch(model, criterion, optimizer, data_loader, device, epoch, args, None, scaler)
        lr_scheduler.step()  # finds: O013
        evaluate(model, criterion, data_loader_test, device=device)
        if args.output_dir:
            checkpoint = {"model": model_without_ddp.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            utils.save_on_master(checkpoint, os.path.join(args.output_dir, f"model_{epoch}.pth"))
    print(f"Training time {datetime.timedelta(seconds=int(time.time() - start_time))}")


if __name__ == "__main__":
    main(utils.get_args_parser().parse_args())
