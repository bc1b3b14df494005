"""How the remedies that pages show follow what `porting check` says to do about their examples."""

from __future__ import annotations

from typing import Dict, NamedTuple


class Followed(NamedTuple):
    """A help, by words of it; what of the example is gone in the page's remedy, and what has come."""

    words: str
    gone: str = ""
    come: str = ""


CHECKS: Dict[str, Followed] = {
    "L001": Followed("hand the loss over", "criterion(model(x), y)", "to_ipu(model, criterion, optimizer=optimizer)"),
    "L010": Followed("drop the line", "loss.backward()"),
    "L011": Followed("`to_ipu(model, loop='host')`", "critic(real)", "ported.model(real)"),
    "L012": Followed("into one in `forward`", "retain_graph=True", "to_ipu(model, loss, optimizer=optimizer)"),
    "L013": Followed("keep the labels that the call was given", "output, labels, loss = port", "output, loss = port"),
    "L014": Followed("the same arguments", "def forward(self, x):", "def forward(self, x, labels):"),
    "C026": Followed("`x = x - c`, not `x -= c`", "x -= x", "x = x - x"),
    "O008": Followed("drop the line", "optimizer.zero_grad()"),
    "O009": Followed("`to_ipu(..., max_grad_norm=1.0)`", "clip_grad_norm_", "max_grad_norm=1.0"),
    "O010": Followed("`PortOptions(precision='mixed')`", "GradScaler", 'PortOptions(precision="mixed")'),
    "O011": Followed("`PortOptions(accumulation=k)`", "% 4", "accumulation=4"),
    "O012": Followed("hand it over", "trainingModel(model, options)", "optimizer=optimizer"),
    "O013": Followed("`model.setOptimizer(optimizer)` behind the step", come="setOptimizer(optimizer)"),
    "O014": Followed("as groups of one optimizer", "second.step()", "groups = [{"),
    "O015": Followed("one of torch's", "p.grad", "torch.optim.SGD(model.parameters(), lr=0.1)"),
    "O016": Followed("accumulation and replicas are options", "no_sync", "accumulation=4, replicas=2"),
    "B014": Followed("`loader = ported.dataloader(loader)`", come="loader = ported.dataloader("),
    "B015": Followed("`ported.dataloader(porting.partition(dataset))`", "DistributedSampler", "dataloader(partition("),
    "B016": Followed("`len(ported.dataloader(loader))`", "DataLoader(dataset", "ported.dataloader(dataset"),
    "B017": Followed("give the loader workers", come="num_workers=8"),
    "B018": Followed("pad to one length", "pad_sequence", "[0] * (LENGTH - len(row))"),
    "B019": Followed("pass the state to the call", "hidden.detach()", "ported(x, hidden, y)"),
    "B020": Followed("with `ported.inference()`", "environment.step", "ported.inference()"),
    "B021": Followed("by a `Subset`", "break", "Subset("),
    "B022": Followed("write `=`", "==", 'batch["image"] = '),
    "P012": Followed("`model.half()` before `trainingModel`", come="model.half()"),
    "P013": Followed("`PortOptions(precision='mixed')`", "autocast", 'PortOptions(precision="mixed")'),
    "P014": Followed("add it to the configuration", come='add_argument("--num-replicas"'),
    "D010": Followed("`except ImportError: poptorch = None`", come="except ImportError:\n    poptorch = None"),
    "D011": Followed("to None in the handler", "    pass", "    popdist = None"),
    "D012": Followed("hand `to_ipu` the model itself", "DataParallel", "PortOptions(replicas=2)"),
    "D013": Followed("leave the model on the CPU", ".cuda()"),
    "D014": Followed("with PopTorch, `poptorch.inferenceModel`", "port.eval()", "poptorch.inferenceModel("),
    "D015": Followed("call what `to_ipu`", "criterion(model(x), y)", "ported(x, y)"),
    "D016": Followed("compile before the clock starts", come="compile(*next(iter(loader)))"),
    "D017": Followed("`popdist.poptorch.Options()`", come="popdist.poptorch.Options()"),
    "D018": Followed("`porting.this_instance()`", "init_process_group", "porting.this_instance()"),
    "D019": Followed("set it on every path", come="loss = None"),
    "D020": Followed("read every n-th step", "loss.item()", "device_iterations=4"),
    "K005": Followed("`torch.save(model.state_dict(), path)`", "torch.save(model,", "torch.save(model.state_dict(),"),
    "K006": Followed("`ported.save(path)`", "torch.save(ported,", "ported.save("),
    "K007": Followed("write it in one instance", come="if instance.index == 0"),
}
