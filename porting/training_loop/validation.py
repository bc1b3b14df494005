"""Evaluate a port over a loader behind each epoch: the mean loss, and metrics over all samples.

Metrics are functions of output and labels, or objects with `update`, `compute` and `reset` as torchmetrics has them.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, Mapping, Protocol, Tuple, Union

import torch

from ..adapters.filled_rows import count_rows, cut_rows, fill_rows
from ..adapters.instances import sum_over_instances
from ..adapters.labels import NO_LABELS, split_labels
from ..api import PortedModel
from ..diagnostics import OptionError, say_kind
from ..structure import Structure, make_call_arguments
from ..support.host_state import keep_streams

__all__ = ["Metric", "MetricObject", "Validation", "check_metrics"]


class MetricObject(Protocol):
    """A metric that collects batches, such as those of torchmetrics."""

    def update(self, output: Structure, labels: Structure) -> None:
        """Take a batch."""

    def compute(self) -> float:
        """Return the value over all batches since `reset`."""

    def reset(self) -> None:
        """Forget all batches."""


Metric = Union[MetricObject, Callable[..., object]]


def check_metrics(metrics: Mapping[str, Metric], *, has_validation: bool) -> None:
    """Raise OptionError P002 for metrics without a validation, and for what is neither function nor metric."""
    if metrics and not has_validation:
        raise OptionError.at_caller(
            "P002",
            message="`metrics` are given without `validation`, whose samples they are computed of",
            help="pass a loader: `fit(..., validation=ported.dataloader(dataset, training=False), metrics=...)`",
        )
    if not isinstance(metrics, Mapping):
        raise OptionError.at_caller(
            "P002",
            message=f"`metrics` is {say_kind(metrics)}, whose metrics have no names",
            help="pass a dictionary: `fit(..., metrics={name: function})`",
        )
    for name, metric in metrics.items():
        if isinstance(metric, type) or not (callable(metric) or _is_metric_object(metric)):
            raise OptionError.at_caller(
                "P002",
                message=f"the metric `{name}` is {metric!r}, neither a function nor an object that collects batches",
                help="pass a function of output and labels, or an instance such as `torchmetrics.MeanSquaredError()`",
            )


class Validation:
    """The loader and the metrics of a `fit`'s validation.

    A batch that is smaller than the first one, or than those that the port was evaluated on before, is filled up on the
    device, and counts with its own rows alone.
    """

    def __init__(self, ported: PortedModel, loader: Iterable[Structure], metrics: Mapping[str, Metric]) -> None:
        """Keep them; nothing is compiled here."""
        self._ported = ported
        self._loader = loader
        self._objects: Dict[str, Any] = {name: metric for name, metric in metrics.items() if _is_metric_object(metric)}
        self._functions: Dict[str, Any] = {name: each for name, each in metrics.items() if name not in self._objects}
        compiled = [each.samples_per_call for each in ported.report().executors if each.name == "evaluation"]
        self._num_rows = next((rows for rows in compiled if rows), 0)
        self.names = tuple(f"val_{name}" for name in ("loss", *metrics))

    def measure(self, after_batch: Callable[[Structure, Structure, int], None]) -> Dict[str, float]:
        """Evaluate over the loader and return the metrics by name; the host's random streams stay as they are.

        Means are over samples, as Lightning takes them, and over those of all instances. Raises what a call of the port
        after `eval()` would.
        """
        self._ported.eval()
        for metric in self._objects.values():
            metric.reset()
        sums = dict.fromkeys(("loss", *self._functions), 0.0)
        num_samples = 0.0
        # a loader draws its seed from the stream that the training shuffles with
        with torch.no_grad(), keep_streams():
            for index, batch in enumerate(self._loader):
                rows = count_rows(batch) or 1
                returned, loss, output, labels = self._evaluate_batch(batch, rows)
                values = {name: function(output, labels) for name, function in self._functions.items()}
                for name, value in {"loss": loss, **values}.items():
                    sums[name] += float(torch.as_tensor(value).double().mean()) * rows
                for metric in self._objects.values():
                    metric.update(output, labels)
                num_samples += rows
                after_batch(returned, batch, index)
        *totals, num_samples = sum_over_instances([*sums.values(), num_samples]).tolist()
        means = {name: total / num_samples if num_samples else float("nan") for name, total in zip(sums, totals)}
        computed = {name: float(metric.compute()) for name, metric in self._objects.items()}
        found = {**means, **computed}
        return {name: found[name[len("val_") :]] for name in self.names}

    def _evaluate_batch(self, batch: Structure, rows: int) -> Tuple[Structure, Any, Structure, Structure]:
        """Evaluate a batch: what the call has returned, the loss, the output and the labels."""
        port = self._ported.port
        args, kwargs = make_call_arguments(batch)
        labels = NO_LABELS
        if port.loss is not None:
            labels = split_labels(port.model.forward, args, kwargs, label=port.label).labels
        output_of = port.wrapped.output_of
        self._num_rows = self._num_rows or rows
        can_fill = labels is not NO_LABELS and output_of is not None and port.options.max_executables == 1
        if not can_fill or rows >= self._num_rows:
            returned = self._ported(*args, **kwargs)
            output = None if output_of is None else output_of(returned)
            return returned, self._ported.loss_of(returned), output, labels
        args, kwargs = make_call_arguments(fill_rows(batch, self._num_rows))
        returned = cut_rows(self._ported(*args, **kwargs), rows)
        assert output_of is not None
        output = output_of(returned)
        return returned, port.wrapped.find_loss_of(output, labels), output, labels


def _is_metric_object(metric: object) -> bool:
    return all(callable(getattr(metric, name, None)) for name in ("update", "compute", "reset"))
