"""What a reader does who follows a help: for each help that a page's example prints, changes of the example."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Tuple


@dataclass(frozen=True)
class Step:
    """A help, by words of it, and the changes of the example that follow it: texts and what takes their places."""

    words: str
    changes: Tuple[Tuple[str, str], ...]


def follow(words: str, *changes: Tuple[str, str]) -> Step:
    return Step(words, changes)


STEPS: Dict[str, List[Step]] = {
    "L002": [follow("`reduction='mean'`", ('reduction="none"', 'reduction="mean"'))],
    "L003": [follow("remove the `detach()`", (".detach()", ""))],
    "L004": [
        follow(
            "say where the loss is", ("(Classifier(4, 3))", '(Classifier(4, 3), loss_output="logits", reduction="sum")')
        ),
        follow(
            "pass the loss",
            ("(Classifier(4, 3))", "(Classifier(4, 3), lambda output, y: output['logits'].sum())"),
            ("torch.rand(8, 4))", "torch.rand(8, 4), torch.ones(8))"),
        ),
    ],
    "L006": [follow("the model's inputs and then the label", (', label="target"', ""))],
    "L007": [follow("say where the loss is", ("loss_output=2", "loss_output=1"))],
    "L008": [follow("look for `log`", ("torch.log(output - output)", "(output - output)"))],
    "L015": [
        follow("with the plain model", ("score = ported(x)", "score = ported.model(x)")),
        follow(
            "calls_on_host",
            ('to_ipu(critic, loop="host")', "critic"),
            ("score = ported(x)", "with calls_on_host():\n    score = ported(x)"),
            ("from porting import to_ipu", "from porting.integrations import calls_on_host"),
        ),
    ],
    "L009": [
        follow("move the input away", ("x.sqrt()", "(x.abs() + 1e-6).sqrt()")),
        follow("mask the input of the operator", ("x.sqrt()", "torch.where(x > 0, x, torch.ones_like(x)).sqrt()")),
    ],
    "C001": [
        follow(
            "`torch.where`",
            ("if x.sum() < 0:\n            return -x\n        return x", "return torch.where(x.sum() < 0, -x, x)"),
        )
    ],
    "C002": [follow("`torch.where(mask, x, 0)`", ("x[x > 0].sum()", "torch.where(x > 0, x, 0).sum()"))],
    "C003": [
        follow("`device=x.device`", ("x + self.offset", "x + torch.arange(4.0, device=x.device)")),
        follow(
            "`self.register_buffer(...)`",
            ("self.offset = torch.arange(4.0)", 'self.register_buffer("offset", torch.arange(4.0))'),
        ),
    ],
    "C004": [
        follow("leave the tensor on the device", ("self.seen = x.mean().cpu()", "x = x + x.mean()")),
        follow(
            "return it from `forward`",
            ("self.seen = x.mean().cpu()", "seen = x.mean()"),
            ("return 2 * x", "return 2 * x, seen"),
        ),
    ],
    "C005": [
        follow("with differentiable operators", ("Clip.apply(super().forward(x))", "super().forward(x)")),
        follow(
            "just the derivative",
            ("torch.nn.MSELoss())", "torch.nn.MSELoss(), options=PortOptions(allow=['custom-autograd-function']))"),
        ),
    ],
    "C006": [follow("in place", ("self.count = self.count + 1", "self.count.copy_(self.count + 1)"))],
    "C010": [
        follow("return the tensor", ("        print(hidden)\n", ""), ("hidden.sum(dim=1)", "hidden.sum(dim=1), hidden"))
    ],
    "C014": [
        follow(
            "return the tensor",
            (
                "if not cache:\n            cache.append(x.mean(dim=0))\n        return x - cache[0]",
                "mean = x.mean(dim=0)\n        return x - mean, mean",
            ),
        )
    ],
    "C015": [follow("returns a new tensor", ("y.resize_(8, 1)", "y = y.reshape(8, 1)"))],
    "C016": [
        follow(
            "assign the parameter itself",
            ("self.decode.weight.data = self.encode.weight.data", "self.decode.weight = self.encode.weight"),
        ),
        follow("`.clone()`", ("= self.encode.weight.data", "= self.encode.weight.data.clone()")),
    ],
    "C020": [
        follow("on the device", ("random.random()", "torch.rand((), device=x.device)")),
        follow(
            "`PortOptions(frozen=['Noisy'])`",
            ("CrossEntropyLoss())", "CrossEntropyLoss(), options=PortOptions(frozen=['Noisy']))"),
        ),
    ],
    "C021": [
        follow("draw nothing", ("Dropout(0.1)", "Dropout(0.0)")),
        follow(
            "leave `loop` out",
            ('loop="host"', "torch.nn.MSELoss()"),
            ("(torch.ones(3, 4)).sum().backward()", "(torch.ones(3, 4), torch.ones(3, 2))"),
        ),
    ],
    "O001": [follow("the nearest is", ("torch.optim.Rprop", "torch.optim.RMSprop"))],
    "O002": [follow("leave `amsgrad` out", (", amsgrad=True", ""))],
    "O003": [
        follow("of the very model", ("model = copy.deepcopy(model)\n", "")),
        follow(
            "make it anew",
            ("to_ipu(model", "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nto_ipu(model"),
        ),
    ],
    "O004": [
        follow("call the ported model", ("optimizer.step(lambda: ported(x, y)[1])", "output, loss = ported(x, y)"))
    ],
    "O006": [follow("that was passed to `to_ipu`", ("StepLR(other,", "StepLR(optimizer,"))],
    "O007": [follow("remove `zero_grad()`", ("optimizer.step()\n", ""))],
    "B001": [
        follow(
            "the same shape",
            (
                "ported(torch.rand(5, 4), torch.randint(3, (5,)))\n",
                "ported(torch.rand(8, 4), torch.randint(3, (8,)))\n",
            ),
        ),
        follow("`ported.destroy()`", ("ported(torch.rand(5, 4)", "ported.destroy()\nported(torch.rand(5, 4)")),
        follow(
            "`PortOptions(max_executables=2)`",
            ("CrossEntropyLoss())", "CrossEntropyLoss(), options=PortOptions(max_executables=2))"),
        ),
    ],
    "B002": [
        follow("convert it", (".half()", ".half().to(torch.float32)")),
        follow(
            "`ported.destroy()`", ("ported(torch.rand(8, 4).half()", "ported.destroy()\nported(torch.rand(8, 4).half()")
        ),
    ],
    "B003": [
        follow("in the same way", ("ported(x, y)", "ported(x, 1.0, y)")),
        follow("`ported.destroy()`", ("ported(x, y)", "ported.destroy()\nported(x, y)")),
    ],
    "B004": [follow("`options.samples_per_call` rows", ("10", "4"))],
    "B005": [
        follow("lower `accumulation`", ("accumulation=8", "accumulation=5")),
        follow(
            "or pad", ("ported.dataloader(samples)", "ported.dataloader(FixedBatchDataset(samples, batch_size=32))")
        ),
    ],
    "B006": [
        follow(
            "pad the last batch",
            ("(samples, batch_size=8)", "(FixedBatchDataset(samples, batch_size=8), batch_size=8)"),
        ),
        follow("whose product divides", ("batch_size=8", "batch_size=5")),
        follow("say `drop_last=True`", ("batch_size=8", "batch_size=8, drop_last=True")),
    ],
    "B007": [
        follow("`ignore_index=-1`", ("CrossEntropyLoss()", "CrossEntropyLoss(ignore_index=-1)")),
        follow("pad with the label it ignores", ("ignore_label=-1", "ignore_label=-100")),
    ],
    "B008": [
        follow("sizes that divide", ("FixedBatchDataset(samples, batch_size=8)", "samples[:16]")),
        follow("one sample at a time", ("BatchNorm1d(4)", "GroupNorm(1, 4)")),
    ],
    "B012": [
        follow(
            "convert it",
            ('numpy.ones((8, 4), dtype="float32")', 'torch.from_numpy(numpy.ones((8, 4), dtype="float32"))'),
        )
    ],
    "B013": [
        follow("to the number of classes less one", ("[0, 3]", "[0, 2]")),
        follow("give the loss an `ignore_index`", ("CrossEntropyLoss()", "CrossEntropyLoss(ignore_index=3)")),
    ],
    "P003": [follow("`precision='mixed'`", ('"float16"', '"mixed"'))],
    "P011": [
        follow(
            "say that this is meant",
            ("replicas=2", "replicas=2, broadcast_buffers=False"),
            ('assert "P011"', 'assert "P011" not'),
        )
    ],
    "D001": [follow("`device='sim'`", ('device="ipu"', 'device="sim"'))],
    "D003": [
        follow("choose the device with", ('ported.to("cuda")\n', "")),
        follow("`ported.destroy()` first", ('ported.to("cuda")', 'ported.destroy()\nported.model.to("meta")')),
    ],
    "D004": [
        follow(
            "compile first",
            (
                "ported.attach()",
                "ported.compile(torch.rand(8, 4), torch.zeros(8, dtype=torch.int64))\nported.detach()\nported.attach()",
            ),
        )
    ],
    "D005": [follow("`ported.destroy()`", ("ported.train()", "ported.destroy()\nported.train()"))],
    "D006": [
        follow("pass them", ("torch.rand(8, 4))", "torch.rand(8, 4), torch.zeros(8, dtype=torch.int64))")),
        follow("`ported.inference()", ("ported(torch", "ported.inference()(torch")),
        follow(
            "a dictionary by keyword",
            ("CrossEntropyLoss())", "CrossEntropyLoss(), label='y')"),
            ("torch.rand(8, 4))", "**{'input': torch.rand(8, 4), 'y': torch.zeros(8, dtype=torch.int64)})"),
        ),
    ],
    "D007": [follow("compile first", ("ported.attach()", "ported.compile(x, y)\nported.detach()\nported.attach()"))],
    "L005": [
        follow(
            "add them up",
            (
                "functional.mse_loss(output, y), functional.l1_loss(output, y)",
                "poptorch.identity_loss(functional.mse_loss(output, y) + output.sum(), reduction='none')",
            ),
        )
    ],
    "C008": [follow("at least one element", ("torch.rand(0, 4)", "torch.rand(1, 4)"))],
    "C012": [follow("before the call", ("[signal]", "[signal.abs()]"))],
    "C013": [follow("with other operators", ("return double(x)", "return x + x"))],
    "C017": [
        follow(
            "outside `forward`",
            ("forward(torch.linalg.inv(x))", "forward(x)"),
            ("MSELoss())(x, x)", "MSELoss())(torch.linalg.inv(x), x)"),
        )
    ],
    "C018": [
        follow(
            "an input of the body",
            ("def body(value):", "def body(value, total):"),
            ("        total.add_(value)\n", ""),
            ("return value * 0.5", "return value * 0.5, total + value"),
            ("body, [x])", "body, [x, total])"),
        )
    ],
    "C043": [follow("used before the call", ("torch.tensor(2**40 + 15)", "torch.tensor((2**40 + 15) % 7)"))],
    "O005": [
        follow(
            "from a checkpoint of this model",
            (
                'optimizer.state[model.weight]["momentum_buffer"] = torch.zeros(5, 5)',
                "optimizer.load_state_dict(optimizer.state_dict())",
            ),
        )
    ],
    "B009": [follow("leave batches on the CPU", (', device="meta"', ""))],
    "B010": [follow("say `drop_last=True`", ("batch_size=8", "batch_size=8, drop_last=True"))],
    "B011": [
        follow("`torch.unique(ids, return_inverse=True)`", ("ids, y)", "torch.unique(ids, return_inverse=True)[1], y)"))
    ],
    "P002": [
        follow("of micro_batch", ("micro_batch=0", "micro_batch=1"), ("average", "sum")),
        follow("of reduction", ("micro_batch=0", "micro_batch=1"), ("average", "mean")),
    ],
    "P004": [follow("use one of", ("warp-drive", "replay"))],
    "P005": [follow("set it to one of", ('"gpu"', '"sim"'))],
    "K001": [follow("use another copy", ('with open("model.pt", "r+b") as file:\n    file.truncate(1000)\n', ""))],
    "K002": [follow("with the settings it was saved with", ("torch.nn.Linear(5, 3)", "torch.nn.Linear(4, 3)"))],
    "K004": [
        follow(
            "make loader, dataset and options as they were",
            ('load("training.pt", loader=DataLoader(data, batch_size=2))', 'load("training.pt", loader=shuffled)'),
        )
    ],
    "K008": [follow("choose a folder", ('checkpoint="kept"', 'checkpoint="another"'))],
    "K009": [
        follow("a folder of its own", ('lambda returned: train("kept")', 'lambda returned: train("another")')),
        follow("when the other has ended", (', after_call=lambda returned: train("kept"))', ')\ntrain("kept")')),
    ],
    "M002": [
        follow(
            "without its branches",
            ("poptorch.cond(is_large, half, [y], same, [y])[0]", "torch.where(is_large, half(y), same(y))"),
        )
    ],
    "V002": [follow("`copy.deepcopy(model)`", ("twin = torch.nn.Linear(4, 2)", "twin = copy.deepcopy(model)"))],
    "V006": [follow("check at another point", ("[1.0, 0.0]", "[1.0, 0.5]"))],
    "V007": [
        follow(
            "name the other tensors",
            ("torch.ones(4, 3))", "torch.ones(4, 3), params=[weight])"),
            ("x @ weight", "x @ weight"),
        ),
        follow("in another type", ("torch.ones(4, 3))", "torch.ones(4, 3), dtype=torch.float32)")),
    ],
    "S001": [follow("leave it out", ("popart.TrainingSession", ""))],
    "F002": [
        follow(
            "check the path",
            ('require_file("mushrooms.csv")', 'open("mushrooms.csv", "w").close()\nrequire_file("mushrooms.csv")'),
        )
    ],
    "E029": [follow("make the folder, or name a file in another one", ("nowhere/model.step", "model.step"))],
    "C007": [
        follow(
            "with the plain model",
            (
                'capture_step(Slope(), [torch.rand(8, 4)], mode="inference")',
                "Slope()(torch.rand(8, 4, requires_grad=True))",
            ),
        ),
        follow(
            "torch.func.grad",
            ("(slope,) = torch.autograd.grad((x**3).sum(), x)", "slope = torch.func.grad(lambda x: (x**3).sum())(x)"),
        ),
    ],
    "C024": [
        follow(
            "by operators of the device",
            (", host=True", ""),
            ("def svdvals(x):\n    return torch.linalg.svdvals(x)", "def svdvals(x):\n    return x.abs().sum(-1)"),
        )
    ],
    "P001": [follow("use `precision='float16'`", ('bfloat16"', 'float16"'))],
    "P007": [follow("`model.named_modules()`", ("layers.2", "2"))],
    "P008": [follow("use `accumulation=3`", ("stages={", "accumulation=3, stages={"))],
    "P009": [follow("list them as they run", ('{"2": 1, "1": 2}', '{"1": 1, "2": 2}'))],
    "P010": [follow("begin a stage on the weight's IPU", ('{"middle": 1}', '{"middle": 1, "head": 0}'))],
    "M003": [follow("amounts have units", ('"1024"', '"1024 KiB"'))],
    "M004": [
        follow(
            "make a small model by its own settings",
            ("reduce_model(Model(), batch, torch.nn.MSELoss())", "reduce_model(Model(2), batch, torch.nn.MSELoss())"),
        )
    ],
    "V005": [follow("look at `backward`", ("2 * gradient", "3 * gradient"))],
    "E020": [
        follow(
            "write the file, or name another",
            ("load_program(", "open('nothing.py', 'w').write('def make(): return 1, 2, 3')\nload_program("),
            ("return 1, 2, 3", "import torch; return torch.nn.Linear(4, 3), torch.nn.MSELoss(), torch.ones(2, 4)"),
        )
    ],
    "E021": [
        follow(
            "make it run by itself first",
            ("return 1 / 0", "import torch; return torch.nn.Linear(4, 3), torch.nn.MSELoss(), torch.ones(2, 4)"),
        )
    ],
    "E022": [
        follow(
            "return `(model, loss, batch)`",
            (
                "model = torch.nn.Linear(4, 3)\\n",
                "def model(): return torch.nn.Linear(4, 3), torch.nn.MSELoss(), torch.ones(2, 4)\\n",
            ),
        ),
        follow(
            "a dictionary or an object",
            (
                "model = torch.nn.Linear(4, 3)\\n",
                "def model(): return dict(model=torch.nn.Linear(4, 3), loss=len, batch=torch.ones(2, 4))\\n",
            ),
        ),
    ],
    "E023": [
        follow(
            "export the step again",
            (
                'load_step("half.step")',
                'export(model, loss, batch, "half.step", optimizer=optimizer)\nload_step("half.step")',
            ),
        )
    ],
    "E024": [
        follow(
            "export the step again",
            (
                'load_step("later.step")',
                'export(model, loss, batch, "later.step", optimizer=optimizer)\nload_step("later.step")',
            ),
        )
    ],
    "E025": [follow("export it again", ("torch.ones(8, 4), torch.zeros(8,", "torch.ones(16, 4), torch.zeros(16,"))],
    "E026": [follow("take one of these", ('"sqrt"', '"chen"'))],
    "E027": [
        follow(
            "in the process that has the model",
            (
                'export(model, loss, batch, "model.step", optimizer=optimizer)',
                "import porting\nporting.to_ipu(model, loss, optimizer=optimizer, device='sim').compile(*batch)",
            ),
        )
    ],
    "E028": [follow("use one of", ('"picture"', '"text"'))],
    "T006": [follow("leave out `--resume`", (", earlier=earlier", ""))],
    "T008": [follow("name another file", ("first = second =", "second = Path('other.json')\nfirst ="))],
    "D009": [
        follow(
            "`PortOptions(keep_gradients=True)`",
            ("MSELoss())", "MSELoss(), options=PortOptions(keep_gradients=True))"),
        )
    ],
    "V001": [follow("learning rate, weight decay", ("sgd(twin, 0.2)", "sgd(twin, 0.1)"))],
    "F001": [follow("get the file again", ("\\n8\\n", "\\n8,0.1\\n"))],
}

# helps that no change of the example follows, each with the reason
EXCUSED: Dict[Tuple[str, str], str] = {
    ("B033", "run one epoch of the loader by itself"): "it shows where the loader fails",
    ("C023", "install torch from 1.0 up to"): "it needs another torch",
    ("C023", "is not affected"): "nothing has to be done",
    ("C024", "to make this an error"): "it is another finding's choice",
    ("D001", "install the poptorch wheel"): "the vendor's software is not here",
    ("D008", "`torch.distributed.init_process_group` first"): "it needs several processes",
    ("K003", "nothing has to be done"): "nothing has to be changed",
    ("L008", "`ported.find_nan(batch)` names"): "it names the line that is to be changed",
    ("L008", "try a lower learning rate"): "the example has its NaN before the first update",
    ("L008", "with no label that counts"): "the example's batch has no such label",
    ("T005", "that `porting bench --json FILE` has written"): "it takes a run of the benchmarks",
    ("V003", "look at the whole certificate"): "it names what is to be put right",
    ("V004", "make it again with"): "it takes a run of `porting verify`",
    ("V009", "give two commits"): "it takes a repository, and the command is tried where it is tested",
    ("V008", "let its maker sign it"): "it takes a key, and the command is tried where it is tested",
    (
        "X007",
        "`porting check PROGRAM --baseline known.json --write-baseline`",
    ): "the command is tried where it is tested",
}
