"""What a rule says beside the fault: what a port needs there, what to do, and the step of a recipe that shows it."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Mapping, Optional, Tuple

__all__ = ["WORDINGS", "Wording"]


@dataclass(frozen=True)
class Wording:
    """The words of one code: in a plain program, as the action that helps, and where a recipe does it."""

    needs: str
    help: str
    shown: Optional[Tuple[str, int]] = None
    """A recipe and the number of its step."""


_STEP = "a port needs no `{name}`: its call makes the whole training step"
_LOOP = "drop the line: the call of the ported model makes the step; or keep the loop with `to_ipu(model, loop='host')`"

WORDINGS: Mapping[str, Wording] = MappingProxyType(
    {
        "L001": Wording(
            "a port needs its loss inside `forward`",
            "hand the loss over: `to_ipu(model, criterion, optimizer=optimizer)`",
            ("first_port", 2),
        ),
        "L010": Wording(_STEP.format(name="backward()"), _LOOP, ("first_port", 2)),
        "L011": Wording(
            "a port needs the gradients of the loop inside its step",
            "train with `to_ipu(model, loop='host')`, and compute a penalty with the plain model, `ported.model(x)`",
            ("first_port", 1),
        ),
        "L012": Wording(
            "a port needs one backward pass a step, and keeps no graph",
            "sum the losses up into one in `forward`",
            ("dcgan", 1),
        ),
        "L013": Wording(
            "a port needs no labels among its results",
            "return what the device has computed, and keep the labels that the call was given",
            ("skip_gram", 2),
        ),
        "L014": Wording(
            "a port needs a `forward` that takes all arguments of the call",
            "give each model that is ported the same arguments, or let `to_ipu(model, loss)` add the loss",
            ("cosmictagger", 2),
        ),
        "L015": Wording(
            "a port needs a loop without gradients of gradients",
            "compute the loss of this step with the plain model, which has the same weights: `ported.model(x)`",
            None,
        ),
        "O001": Wording(
            "a port needs an optimizer that the device has",
            "the device has SGD, Adam, AdamW and RMSprop: use one of them, or `to_ipu(model, loop='host')`",
            ("first_port", 1),
        ),
        "O002": Wording(
            "a port needs its optimizer without this setting",
            "leave the setting out, or train with `to_ipu(model, loop='host')`",
            ("first_port", 1),
        ),
        "O004": Wording(
            "a port needs a step without a closure",
            "the call of the ported model computes loss and gradients itself: choose an optimizer without a closure",
            ("first_port", 2),
        ),
        "O007": Wording(_STEP.format(name="step()"), _LOOP, ("first_port", 2)),
        "O008": Wording(_STEP.format(name="zero_grad()"), _LOOP, ("first_port", 2)),
        "O009": Wording(
            "a port needs the clipping inside its step",
            "hand the norm over: `to_ipu(..., max_grad_norm=1.0)`",
            ("ptb_rnn", 1),
        ),
        "O010": Wording(
            "a port needs no `GradScaler`",
            "choose the precision when you port: `PortOptions(precision='mixed')`",
            ("cosmictagger", 8),
        ),
        "O011": Wording(
            "a port needs its accumulation as an option",
            "hand over the number: `PortOptions(accumulation=k)`; a call makes one step of all micro-batches",
            ("first_port", 6),
        ),
        "O012": Wording(
            "a port needs its optimizer when it is made",
            "make the optimizer first and hand it over: `to_ipu(model, loss, optimizer=optimizer)`",
            ("first_port", 2),
        ),
        "O013": Wording(
            "a port needs to hear of each new learning rate",
            "`scheduler = ported.scheduler(scheduler)`; with PopTorch, `model.setOptimizer(optimizer)` behind the step",
            ("cosmictagger", 3),
        ),
        "O014": Wording(
            "a port needs one optimizer, or an executor for each",
            "join the parameters as groups of one optimizer, or port each half of the training by itself",
            ("dcgan", 1),
        ),
        "O015": Wording(
            "a port needs an optimizer that updates the weights",
            "replace the loop over parameters by one of torch's: `torch.optim.SGD(model.parameters(), lr=lr)`",
            ("first_port", 2),
        ),
        "O016": Wording(
            "a port needs no say in when gradients are synchronised",
            "drop it: accumulation and replicas are options, `PortOptions(accumulation=k, replicas=n)`",
            ("first_port", 6),
        ),
        "B010": Wording(
            "a port needs batches of one shape, and nothing says what becomes of a short last one",
            "choose `drop_last=True`, or pad with `porting.FixedBatchDataset`; then `ported.dataloader(loader)`",
            ("mnist_loop", 1),
        ),
        "O003": Wording(
            "a port needs an optimizer of its model's parameters, and of nothing else",
            "make the tensor a parameter of the model: `self.image = torch.nn.Parameter(image)` in a module around it",
            None,
        ),
        "B014": Wording(
            "a port needs the device's loader",
            "`loader = ported.dataloader(loader)`; with PopTorch, `poptorch.DataLoader(options, dataset, ...)`",
            ("first_port", 3),
        ),
        "B015": Wording(
            "a port needs no sampler that deals out the data",
            "`ported.dataloader(porting.partition(dataset))` gives each instance its share",
            ("distributed", 3),
        ),
        "B016": Wording(
            "a port makes other steps than its loader has batches",
            "count calls: `len(ported.dataloader(loader))`; one has accumulation and device iterations in it",
            ("cosmictagger", 4),
        ),
        "B017": Wording(
            "a port needs workers for random augmentation, or it waits for the host",
            "give the loader workers: `num_workers=8`; PopTorch's has `mode=poptorch.DataLoaderMode.Async` as well",
            ("first_port", 3),
        ),
        "B018": Wording(
            "a port needs batches of one length, or of few",
            "pad to one length, or to a few with an executable each: `PortOptions(max_executables=4)`",
            ("seq2seq", 1),
        ),
        "B019": Wording(
            "a port needs the state as an input and an output of its call",
            "pass the state to the call and take the new one from its results; inside a step it needs no `detach`",
            ("ptb_rnn", 1),
        ),
        "B020": Wording(
            "a port needs its data before the call, and this comes from the model's output",
            "collect a batch of experience with `ported.inference()`, then train on batches of one shape",
            ("first_port", 4),
        ),
        "B021": Wording(
            "a port's loader reads ahead, and its loop is left early",
            "limit the loader's length instead, by a `Subset` or a sampler",
            ("mnist_loop", 3),
        ),
        "B022": Wording(
            "a comparison stands where an assignment is meant", "write `=`, or drop the line", ("cosmictagger", 0)
        ),
        "C001": Wording(
            "a port needs a `forward` that reads no values",
            "keep the value on the device: `torch.where`, arithmetic on tensors",
            None,
        ),
        "C002": Wording(
            "a port needs shapes that do not depend on the data",
            "compute on all elements and mask: `torch.where(mask, x, 0)`, sums weighted by the mask",
            ("distributed", 4),
        ),
        "C003": Wording(
            "a port needs modules where it looks for parts: in a plain list or dictionary nothing finds their weights",
            "keep them in `nn.ModuleList` or `nn.ModuleDict`",
            None,
        ),
        "C004": Wording("a port needs a `forward` that stays on the device", "drop the move to the host", None),
        "C005": Wording(
            "a port needs operators that autograd knows",
            "write it with torch's operators: `x + (f(x) - x).detach()` passes the gradient straight through",
            None,
        ),
        "C006": Wording(
            "a port needs its buffers changed in place", "change it in place: `self.buffer.copy_(value)`", None
        ),
        "C007": Wording(
            "a port needs a `forward` without calls of autograd",
            "write the derivative out, or compute the loss with the plain model: `to_ipu(model, loop='host')`, "
            "`ported.model(x)`",
            None,
        ),
        "C010": Wording("a port prints nothing in `forward`", "return the tensor and print it after the call", None),
        "C011": Wording(
            "a port needs new tensors on the device of the others", "name it: `device=x.device`, or `x.new_zeros(...)`"
        ),
        "C017": Wording(
            "a port needs dense tensors",
            "compute with dense ones: a dense matrix, or `gather` and `scatter_add` with as many indices each time",
            None,
        ),
        "C044": Wording(
            "a port needs float32, in which it computes what is float64",
            "write float32, so that both compute the same numbers",
            None,
        ),
        "C020": Wording(
            "a port compiles in what Python decides", "draw random numbers on the device: `torch.rand_like(x)`", None
        ),
        "C026": Wording(
            "a port's inputs are copies: what `forward` writes into one is lost",
            "write `x = x - c`, not `x -= c`",
            None,
        ),
        "D003": Wording(
            "a port needs its model moved and cast before",
            "move or cast the model before it is ported; `PortOptions(precision=)` chooses the precision",
            ("cosmictagger", 8),
        ),
        "D009": Wording(
            "a port needs a loop without `p.grad`: gradients stay on the device",
            "read `ported.gradients()`, with `PortOptions(keep_gradients=True)`; or `to_ipu(model, loop='host')`",
            ("first_port", 2),
        ),
        "D010": Wording(
            "the import of PopTorch fails on machines that do not have it",
            "`try: import poptorch` and `except ImportError: poptorch = None`, or import it where it is used",
            ("cosmictagger", 2),
        ),
        "D011": Wording(
            "a failed import is swallowed, and its name used",
            "set the name to None in the handler and ask for it where it is used, or let the import fail",
            ("cosmictagger", 11),
        ),
        "D012": Wording(
            "a port needs the bare model",
            "hand `to_ipu` the model itself; replicas are an option: `PortOptions(replicas=2)`",
            ("distributed", 2),
        ),
        "D013": Wording(
            "a port runs on machines without CUDA",
            "leave the model on the CPU: a port's call takes CPU tensors and brings them to the device",
            ("first_port", 2),
        ),
        "D014": Wording(
            "a port needs an executor of its own for validation",
            "`infer = ported.inference()` has the same weights in eval mode; with PopTorch, `poptorch.inferenceModel`",
            ("cosmictagger", 5),
        ),
        "D015": Wording(
            "the bare model is called where the port should be",
            "call what `to_ipu` or `trainingModel` returned",
            ("first_port", 2),
        ),
        "D016": Wording(
            "a port's first call compiles, which takes minutes",
            "compile before the clock starts: `ported.compile(*next(iter(loader)))`",
            ("cosmictagger", 7),
        ),
        "D017": Wording(
            "each instance has options that know nothing of the others",
            "`popdist.poptorch.Options()`, or `to_ipu` under `poprun`, which joins the instances itself",
            ("cosmictagger", 11),
        ),
        "D018": Wording(
            "a port needs no process group",
            "`poprun` or `torchrun` start instances of a port: `porting.this_instance()` says which one this is",
            ("distributed", 3),
        ),
        "D019": Wording(
            "a name is used on a path that never sets it", "set it on every path that leads here", ("cosmictagger", 5)
        ),
        "D020": Wording(
            "a port waits for its results wherever the host reads one",
            "read every n-th step, or let metrics be computed on the device: `to_ipu(..., metrics=)`",
            ("mnist_trainer", 2),
        ),
        "K005": Wording(
            "a port saves tensors, not the pickled model",
            "save the weights: `torch.save(model.state_dict(), path)`",
            ("cosmictagger", 5),
        ),
        "K006": Wording(
            "a checkpoint holds the ported model",
            "`ported.save(path)` keeps all that a training needs, `torch.save(ported.state_dict(), path)` the weights",
            ("cosmictagger", 5),
        ),
        "K007": Wording(
            "several instances of a port write the same file",
            "write it in one instance: `if porting.this_instance().index == 0`, or name it after the instance",
            ("cosmictagger", 11),
        ),
        "P012": Wording(
            "a precision is asked for and not applied",
            "hand it over: `PortOptions(precision=...)`; with PopTorch, `model.half()` before `trainingModel`",
            ("cosmictagger", 8),
        ),
        "P013": Wording(
            "a port needs no autocast",
            "choose the precision when you port: `PortOptions(precision='mixed')`",
            ("cosmictagger", 8),
        ),
        "P014": Wording(
            "a setting is read that the configuration does not have",
            "add it to the configuration, or name the right setting",
            ("cosmictagger", 11),
        ),
    }
)
"""The wording of each code that rules find."""
