import contextlib
import os

import torch

from .config import ComputeMode, OptimizerKind, Precision
from .loss import LossCalculator
from .networks.uresnet2D import UResNet
from .networks.uresnet3D import UResNet3D
from .trainercore import to_torch, trainercore


class torch_trainer(trainercore):
    def __init__(self, args):
        trainercore.__init__(self, args)
        self._net = None
        self._opt = None
        self.lr_scheduler = None

    def init_network(self):
        if self.args.mode.name == "3d":
            self._raw_net = UResNet3D(self.args.network)
        else:
            self._raw_net = UResNet(self.args.network)
        self._net = self._raw_net

    def initialize(self):
        self.init_network()
        self._net = self._net.to(self.default_device())
        if self.is_training():
            self.init_optimizer()
            self.loss_calculator = LossCalculator("focal")
            if self.args.run.precision == Precision.mixed:
                self.scaler = torch.cuda.amp.GradScaler()  # finds: O010

    def init_optimizer(self):
        if self.args.mode.optimizer == OptimizerKind.RMSProp:
            self._opt = torch.optim.RMSprop(self._net.parameters(), 1.0, eps=1e-4)
        else:
            self._opt = torch.optim.Adam(self._net.parameters(), 1.0)
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self._opt, self.lr_calculator, last_epoch=-1)

    def lr_calculator(self, step):
        return self.args.mode.learning_rate * min(1.0, (step + 1) / 100)

    def default_device(self):
        if self.args.run.compute_mode == ComputeMode.GPU:
            return torch.device("cuda")
        return torch.device("cpu")

    def forward_pass(self, minibatch_data, net=None):
        minibatch_data = to_torch(minibatch_data, self.default_device())
        labels_image = minibatch_data["label"]
        if net is None:
            logits_image = self._net(minibatch_data["image"])
        else:
            logits_image = net(minibatch_data["image"])
        labels_image = torch.chunk(labels_image.long(), chunks=3, dim=1)
        shape = labels_image[0].shape
        labels_image = [label.view([shape[0], shape[-2], shape[-1]]) for label in labels_image]
        return logits_image, labels_image

    def train_step(self):
        self._net.train()
        self._opt.zero_grad()  # finds: O008
        metrics = {}
        grad_accum = self.args.mode.gradient_accumulation
        use_cuda = torch.cuda.is_available()
        for interior_batch in range(grad_accum):  # finds: O011
            with self.timing_context("io"):
                minibatch_data = self.larcv_fetcher.fetch_next_batch("train", force_pop=True)
            if self.args.run.precision == Precision.mixed and use_cuda:
                cast_context = torch.cuda.amp.autocast
            else:
                cast_context = contextlib.nullcontext
            with cast_context():  # finds: P013
                with self.timing_context("forward"):
                    logits_image, labels_image = self.forward_pass(minibatch_data)
                with self.timing_context("loss"):
                    loss = self.loss_calculator(labels_image, logits_image)  # finds: L001
            with self.timing_context("backward"):
                if self.args.run.precision == Precision.mixed and use_cuda:
                    self.scaler.scale(loss).backward()  # finds: L010
                else:
                    loss.backward()  # finds: L010
            with self.timing_context("metrics"):
                metrics["loss"] = metrics.get("loss", 0.0) + loss.item() / grad_accum  # finds: D020
        with self.timing_context("optimizer"):
            if self.args.run.precision == Precision.mixed and use_cuda:
                self.scaler.step(self._opt)  # finds: O007
                self.scaler.update()  # finds: O010
            else:
                self._opt.step()  # finds: O007
            self.lr_scheduler.step()  # finds: O013
        return metrics

    def val_step(self):
        self._net.eval()  # finds: D014
        with torch.no_grad():
            minibatch_data = self.larcv_fetcher.fetch_next_batch("val", force_pop=True)
            logits_image, labels_image = self.forward_pass(minibatch_data)
            loss = self.loss_calculator(labels_image, logits_image)
        return {"loss": loss}

    def save_model(self):
        state_dict = {"state_dict": self._net.state_dict(), "optimizer": self._opt.state_dict()}
        torch.save(state_dict, os.path.join(self.args.output_dir, "model-%d.ckpt" % self._iteration))
