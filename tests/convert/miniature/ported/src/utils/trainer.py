import contextlib

import torch

from src.config.config import ComputeMode, OptimizerKind, Precision
from src.networks.loss import FocalLoss
from src.networks.segmenter import Segmenter
from src.utils.trainercore import TrainerCore

try:
    from porting import PortedModel, to_ipu
except ImportError:  # without ipu-porting the program trains as before
    PortedModel, to_ipu = (), None


class TorchTrainer(TrainerCore):

    def init_network(self):
        torch.manual_seed(self.args.run.seed)
        self._raw_net = Segmenter()

        if self.is_training():
            self._raw_net.train(True)

        # the network may learn what quantization will do to it
        if self.is_training() and self.args.mode.quantization_aware:
            self._raw_net.qconfig = torch.quantization.get_default_qat_qconfig("fbgemm")
            self._net = torch.quantization.prepare_qat(self._raw_net)
        else:
            self._net = self._raw_net

    def initialize(self):
        with self.default_device_context():
            self.init_network()

            # half precision is a property of the weights
            if self.args.run.precision == Precision.bfloat16:
                self._net = self._net.bfloat16()

            self._net = self._net.to(self.default_device())

            if self.is_training():
                self.init_optimizer()
                if self.args.run.compute_mode == ComputeMode.IPU:
                    self._net = to_ipu(
                        self._net,
                        lambda logits_image, labels_image: self.loss_calculator(labels_image, logits_image),
                        optimizer=self._opt,
                    )
            if self.args.run.compute_mode == ComputeMode.IPU and not isinstance(self._net, PortedModel):
                self._net = to_ipu(self._net)

            if self.is_training():
                self.loss_calculator = FocalLoss()

    def init_optimizer(self):
        # the schedule is the rate itself, so the optimizer's is 1.0
        if self.args.mode.optimizer == OptimizerKind.rmsprop:
            self._opt = torch.optim.RMSprop(self._net.parameters(), 1.0, eps=1e-4)
        else:
            self._opt = torch.optim.Adam(self._net.parameters(), 1.0)

        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self._opt, self.lr_calculator, last_epoch=-1)

        if self.args.run.precision == Precision.mixed and self.args.run.compute_mode == ComputeMode.GPU:
            self.scaler = torch.cuda.amp.GradScaler()

    def default_device_context(self):
        if self.args.run.compute_mode == ComputeMode.GPU:
            return torch.cuda.device(0)
        return contextlib.nullcontext()

    def default_device(self):
        if self.args.run.compute_mode == ComputeMode.GPU:
            return torch.device("cuda")
        elif self.args.run.compute_mode == ComputeMode.XPU:
            return torch.device("xpu")
        else:
            return torch.device("cpu")

    def to_torch(self, minibatch_data):
        device = self.default_device()
        for key in minibatch_data:
            minibatch_data[key] = torch.tensor(minibatch_data[key], device=device)
        if self.args.run.precision == Precision.bfloat16:
            minibatch_data["image"] = minibatch_data["image"].bfloat16()
        return minibatch_data

    def forward_pass(self, minibatch_data, net=None):

        makes_step = self.args.run.compute_mode == ComputeMode.IPU and net is None and self._net.training
        with self.default_device_context():
            minibatch_data = self.to_torch(minibatch_data)

            labels_image = minibatch_data["label"]
            # Run the network on the images:
            if not makes_step:
                if net is None:
                    logits_image = self._net(minibatch_data["image"])
                else:
                    logits_image = net(minibatch_data["image"])

            labels_image = labels_image.long()
            labels_image = torch.chunk(labels_image, chunks=3, dim=1)
            shape = labels_image[0].shape

            # without the dimension of the channels
            labels_image = [_label.view([shape[0], shape[-2], shape[-1]]) for _label in labels_image]

        if makes_step:
            logits_image, loss = self._net(minibatch_data["image"], labels_image)
            return logits_image, labels_image, loss
        return logits_image, labels_image

    def compute_metrics(self, logits, labels, loss):
        with torch.no_grad():
            right = [(torch.argmax(logit, dim=1) == label).float().mean() for logit, label in zip(logits, labels)]
            metrics = {"accuracy": sum(right) / len(right)}
            if loss is not None:
                metrics["loss"] = loss
        return metrics

    def train_step(self):

        self._net.train()

        # Reset the gradients:
        if self.args.run.compute_mode != ComputeMode.IPU:
            self._opt.zero_grad()

        metrics = {}
        grad_accum = self.args.mode.gradient_accumulation

        with self.default_device_context():
            if self.args.run.compute_mode == ComputeMode.IPU and grad_accum != 1:
                raise ValueError("a port makes a step in each call: accumulate by its options")
            for interior_batch in range(grad_accum):

                with self.timing_context("io"):
                    minibatch_data = self.fetch_next_batch()

                with self.timing_context("forward"):
                    if self.args.run.compute_mode == ComputeMode.IPU:
                        logits_image, labels_image, loss = self.forward_pass(minibatch_data)
                    elif self.args.run.precision == Precision.mixed and self.args.run.compute_mode == ComputeMode.GPU:
                        with torch.cuda.amp.autocast():
                            logits_image, labels_image = self.forward_pass(minibatch_data)
                    else:
                        logits_image, labels_image = self.forward_pass(minibatch_data)

                # Compute the loss of the logits
                with self.timing_context("loss"):
                    if self.args.run.compute_mode != ComputeMode.IPU:
                        loss = self.loss_calculator(labels_image, logits_image)

                with self.timing_context("backward"):
                    if self.args.run.compute_mode != ComputeMode.IPU:
                        if self.args.run.precision == Precision.mixed and self.args.run.compute_mode == ComputeMode.GPU:
                            self.scaler.scale(loss).backward()
                        else:
                            loss.backward()

                with self.timing_context("metrics"):
                    for key, value in self.compute_metrics(logits_image, labels_image, loss).items():
                        metrics[key] = metrics.get(key, 0.0) + value.item() / grad_accum

            with self.timing_context("optimizer"):
                # Update the weights:
                if self.args.run.compute_mode != ComputeMode.IPU:
                    if self.args.run.precision == Precision.mixed and self.args.run.compute_mode == ComputeMode.GPU:
                        self.scaler.step(self._opt)
                        self.scaler.update()
                    else:
                        self._opt.step()

                self.lr_scheduler.step()

            self.log(metrics, "train")
            self._global_step += 1

    def val_step(self):
        if self._global_step == 0 or self._global_step % self.args.run.aux_iterations:
            return

        self._net.eval()
        if self.args.mode.quantization_aware and self.args.run.compute_mode == ComputeMode.CPU:
            # quantization is for the host alone
            val_net = torch.quantization.convert(self._net)
        else:
            val_net = self._net
        minibatch_data = self.fetch_next_batch()

        with torch.no_grad():
            logits_image, labels_image = self.forward_pass(minibatch_data, net=val_net)
            loss = self.loss_calculator(labels_image, logits_image)

        self.log(self.compute_metrics(logits_image, labels_image, loss), "test")

    def ana_step(self):
        self._net.eval()
        minibatch_data = self.fetch_next_batch()

        with torch.no_grad():
            logits_image, labels_image = self.forward_pass(minibatch_data)

        self.log(self.compute_metrics(logits_image, labels_image, None), "ana")
        self._global_step += 1

    def checkpoint(self):
        if self._global_step % self.args.mode.checkpoint_iteration == 0:
            state = {
                "global_step": self._global_step,
                "state_dict":  self._net.state_dict(),
                "optimizer":   self._opt.state_dict(),
                "scheduler":   self.lr_scheduler.state_dict(),
            }
            torch.save(state, f"{self.args.run.output_dir}/model-{self._global_step}.ckpt")
