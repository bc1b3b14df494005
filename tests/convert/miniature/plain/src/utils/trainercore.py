import contextlib
import os
import time

import numpy

from src.config.config import ModeKind


class TrainerCore:
    """What trainers of every framework share: the data, the loop, the files."""

    def __init__(self, args):
        self.args         = args
        self._global_step = 0
        self._times       = {}
        self._random      = numpy.random.RandomState(args.run.seed)
        os.makedirs(args.run.output_dir, exist_ok=True)

    def is_training(self):
        return self.args.mode.name == ModeKind.train

    def fetch_next_batch(self, size=16):
        label = self._random.randint(0, 3, (self.args.run.minibatch_size, 3, size, size))
        noise = self._random.normal(0.0, 0.3, label.shape)
        return {"image": (label + noise).astype(numpy.float32), "label": label}

    @contextlib.contextmanager
    def timing_context(self, key):
        start = time.time()
        yield
        self._times[key] = self._times.get(key, 0.0) + time.time() - start

    def lr_calculator(self, step):
        """Warm up for five steps, and decay from there."""
        rate = self.args.mode.learning_rate
        return rate * (step + 1) / 5 if step < 5 else rate * 0.99 ** (step - 5)

    def log(self, metrics, kind):
        values = ", ".join(f"{key}: {float(value):.6f}" for key, value in metrics.items())
        print(f"{kind} step {self._global_step}: {values}")

    def batch_process(self):
        for _ in range(self.args.run.iterations):
            if self.is_training():
                self.val_step()
                self.train_step()
                self.checkpoint()
            else:
                self.ana_step()
