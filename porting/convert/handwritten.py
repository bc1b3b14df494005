"""Write the plain loop of a port that was written by hand: its call becomes forward, loss, backward pass and step.

The walk says which names are ports, and of what they were made. What it does not say is left, by line.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Dict, Iterator, List, Optional, Sequence, Set

from porting.convert.bindings import Undecided
from porting.convert.editing import FileEdits
from porting.convert.program import Program
from porting.convert.trees import ProgramFile, list_targets, write_node
from porting.source.facts import Call, Kind

__all__ = ["rewrite_ports"]

_PORT = "porting.to_ipu"
_WHY = "the plain loop makes the step"
_NEEDLESS = ("compile", "warm_up", "attach", "detach", "destroy", "copy_weights_to_host", "copy_weights_to_device")
_SAME = ("train", "eval", "state_dict", "load_state_dict", "parameters", "named_parameters", "modules", "buffers")
_ARGUMENTS = ("optimizer", "max_grad_norm", "options", "device", "loop", "example")
# those with the numbers of a plain step of the whole batch
_OPTIONS = ("micro_batch", "accumulation", "replicas", "max_executables", "seed", "cache_dir", "engine", "memory")
_ADVICE = "put the plain training in its place"


@dataclass(frozen=True)
class _Made:
    """What a port was made of, as the program says it; `name` is the port's, in the function `body`."""

    file: ProgramFile
    body: Optional[ast.AST]
    name: str
    model: str
    loss: str
    optimizer: str
    max_norm: str


def rewrite_ports(program: Program, edits: Dict[str, FileEdits]) -> List[Undecided]:
    """Plan the edits that make plain training of all ports of a program; return what is left."""
    rewriter = _Rewriter(program, edits)
    rewriter.rewrite()
    return rewriter.left


class _Rewriter:
    """Rewrites calls in the order of the walk: a port is made before it is called."""

    def __init__(self, program: Program, edits: Dict[str, FileEdits]) -> None:
        self._program = program
        self._edits = edits
        self._made: Dict[int, _Made] = {}
        self.left: List[Undecided] = []

    def rewrite(self) -> None:
        """Rewrite what makes ports, then what uses them, and take the imports out."""
        calls = list(self._iter_calls())
        for call in calls:
            if call.name.endswith("to_ipu") and not call.receiver:
                self._rewrite_making(call)
        for call in calls:
            made = next((self._made[id(one)] for one in call.receiver if id(one) in self._made), None)
            file = self._program.find_file(call.where.file)
            if made is not None and file is not None:
                is_call = not call.name.startswith(".")
                (self._rewrite_call if is_call else self._rewrite_method)(file, call, made)

    def _iter_calls(self) -> Iterator[Call]:
        seen: Set[int] = set()
        for call in self._program.facts.calls:
            if id(call.node) not in seen and self._program.find_file(call.where.file) is not None:
                seen.add(id(call.node))
                yield call

    def _leave(self, file: ProgramFile, node: ast.AST, reason: str, advice: str = _ADVICE) -> None:
        self.left.append(Undecided(file.path, getattr(node, "lineno", 1), reason, advice))

    # -- what makes a port ---------------------------------------------------------------------------------------------

    def _rewrite_making(self, call: Call) -> None:
        file = self._program.find_file(call.where.file)
        assert file is not None
        statement = file.get_statement(call.node)
        targets = list_targets(statement)
        keywords = {one.arg or "**": one.value for one in call.node.keywords}
        unknown = next((name for name in keywords if name not in (*_ARGUMENTS, "loss", "model")), None)
        told = _find_told_options(file, call.node, keywords.get("options"))
        if isinstance(told, ast.Assign):
            keywords["options"] = told.value
        fault = f"`{unknown}` of `to_ipu` is not written as a plain loop" if unknown else _find_option(keywords)
        given = [*call.node.args, *([None] * 2)]
        model, loss = keywords.get("model", given[0]), keywords.get("loss", given[1])
        if fault or len(targets) != 1 or model is None or getattr(statement, "value", None) is not call.node:
            self._leave(file, call.node, fault or "the port has no name of its own")
            return
        is_host = "loop" in keywords
        made = _Made(
            file,
            file.find_function(call.node),
            targets[0],
            write_node(model),
            "" if loss is None else write_node(loss),
            "" if is_host else write_node(keywords["optimizer"]) if "optimizer" in keywords else "",
            write_node(keywords["max_grad_norm"]) if "max_grad_norm" in keywords else "",
        )
        if not is_host and not made.optimizer:
            self._leave(file, call.node, "the port has no optimizer: the device's default, SGD with 0.01, trains it")
            return
        if isinstance(told, ast.Assign):
            self._edits[file.path].remove(told, "port", "plain PyTorch has no such options")
        if made.model == made.name:
            self._edits[file.path].remove(statement, "port", "the plain model keeps its name")
        else:
            self._edits[file.path].replace(call.node, "PART", "port", "the plain model", part=model)
        if not is_host:
            self._made.update({id(one): made for one in call.result if one.kind is Kind.PORT})

    # -- what uses it --------------------------------------------------------------------------------------------------

    def _rewrite_call(self, file: ProgramFile, call: Call, made: _Made) -> None:
        """Write a call of a port as the statements of a plain step, or of an evaluation."""
        statement = file.get_statement(call.node)
        is_evaluation = call.where.in_evaluation or call.where.without_gradients
        target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
        pair = [write_node(one) for one in target.elts] if isinstance(target, ast.Tuple) else []
        if is_evaluation and len(pair) != 2:
            return
        if len(pair) != 2 or getattr(statement, "value", None) is not call.node or call.node.keywords:
            self._leave(file, call.node, "what the port's call returns is not taken as `output, loss = ...`")
            return
        unknown = [one for one in (made.loss, made.optimizer) if one and not self._is_known(file, call.node, made, one)]
        if unknown:
            self._leave(file, call.node, f"`{unknown[0]}` is not known where the port is called")
            return
        lines = _write_step(call.node, made, pair, trains=not is_evaluation)
        edits = self._edits[file.path]
        for line in lines:
            edits.insert_before(statement, line, "step", _WHY)
        edits.remove(statement, "step", _WHY)
        if made.max_norm and not is_evaluation:
            edits.add_import("import torch", why="gradients are clipped")

    def _is_known(self, file: ProgramFile, node: ast.AST, made: _Made, text: str) -> bool:
        """Tell whether an expression means in a place what it meant where the port was made."""
        if made.file is not file:
            return False
        if made.body is file.find_function(node) or text.startswith("self."):
            return True
        names = {one.id for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Name)}
        return made.body is None or not any(
            next(file.iter_assignments(name, made.body), None) is not None
            or name in [one.arg for one in getattr(made.body, "args").args]  # noqa: B009 - a function's
            for name in names
        )

    def _rewrite_method(self, file: ProgramFile, call: Call, made: _Made) -> None:
        """Write a method of a port by what plain PyTorch has for it."""
        name, statement = call.name[1:], file.get_statement(call.node)
        edits, function = self._edits[file.path], call.node.func
        is_alone = isinstance(statement, ast.Expr) and statement.value is call.node
        given = call.node.args
        is_simple = len(given) == 1 and not call.node.keywords
        if name in _NEEDLESS and is_alone:
            edits.remove(statement, "port", "plain PyTorch needs none")
        elif name == "inference" and isinstance(statement, ast.Assign) and statement.value is call.node:
            target = write_node(statement.targets[0])
            if target.isidentifier() and isinstance(function, ast.Attribute):
                edits.insert_before(
                    statement, _write_inference(target, write_node(function.value)), "port", "evaluation"
                )
                edits.remove(statement, "port", "evaluation in plain PyTorch")
                edits.add_import("import torch", why="an evaluation records no gradients")
            else:
                self._leave(file, call.node, "what infers has no name of its own")
        elif name in ("dataloader", "scheduler") and is_simple and _is_torchs(call):
            edits.replace(call.node, "PART", "port", "torch's own", part=given[0])
        elif name == "optimizer_state_dict":
            edits.replace(call.node, f"{made.optimizer}.state_dict()", "port", "torch's own")
        elif name in ("save", "load") and is_alone and is_simple and isinstance(function, ast.Attribute):
            self._rewrite_checkpoint(file, statement, write_node(function.value), file.text_of(given[0]), made, name)
        elif name not in _SAME:
            self._leave(file, call.node, f"`{name}` of a port has no counterpart in plain PyTorch")

    def _rewrite_checkpoint(
        self, file: ProgramFile, statement: ast.stmt, model: str, path: str, made: _Made, verb: str
    ) -> None:
        """Write checkpoints of the same names: what a port has saved is loaded by the plain program."""
        state = f'{{"model": {model}.state_dict(), "optimizer": {made.optimizer}.state_dict()}}'
        lines = {
            "save": [f"torch.save({state}, {path})"],
            "load": [
                f"kept = torch.load({path}, weights_only=True)",
                f'{model}.load_state_dict(kept["model"])',
                f'{made.optimizer}.load_state_dict(kept["optimizer"])',
            ],
        }
        for line in lines[verb]:
            self._edits[file.path].insert_before(statement, line, "port", "a checkpoint of plain PyTorch")
        self._edits[file.path].remove(statement, "port", "a checkpoint of plain PyTorch")
        self._edits[file.path].add_import("import torch", why="checkpoints are torch's")


def _find_told_options(file: ProgramFile, call: ast.Call, options: Optional[ast.expr]) -> Optional[ast.stmt]:
    """Find the one statement that makes a port's options, where nothing else reads their name."""
    if not isinstance(options, ast.Name):
        return None
    reads = [one for one in ast.walk(file.tree) if isinstance(one, ast.Name) and one.id == options.id]
    scope = file.find_function(call) or file.tree
    made = list(file.iter_assignments(options.id, scope))
    return made[0] if len(made) == 1 and len(reads) == 2 else None


def _find_option(keywords: Dict[str, ast.expr]) -> str:
    """Say which option a plain step has no numbers for; empty where all are as a step of the whole batch."""
    options = keywords.get("options")
    if options is None:
        return ""
    if not isinstance(options, ast.Call) or options.args:
        return "the port's options are not told where it is made"
    other = next((one.arg for one in options.keywords if one.arg not in _OPTIONS), None)
    return f"the option `{other}` of the port changes its numbers, or the steps of a call" if other else ""


def _write_step(call: ast.Call, made: _Made, pair: Sequence[str], *, trains: bool) -> List[str]:
    output, loss = pair
    model = write_node(call.func)
    given = [write_node(one) for one in call.args]
    if made.loss:
        lines = [f"{output} = {model}({', '.join(given[:-1])})", f"{loss} = {_call(made.loss)}({output}, {given[-1]})"]
    else:
        lines = [f"{output}, {loss} = {model}({', '.join(given)})"]
    if not trains:
        return lines
    clip = [f"torch.nn.utils.clip_grad_norm_({model}.parameters(), {made.max_norm})"] if made.max_norm else []
    return [f"{made.optimizer}.zero_grad()", *lines, f"{loss}.backward()", *clip, f"{made.optimizer}.step()"]


def _call(loss: str) -> str:
    return f"({loss})" if loss.startswith("lambda") else loss


def _write_inference(name: str, model: str) -> str:
    return "\n".join(
        [
            f"def {name}(*inputs):",
            f"    was_training = {model}.training",
            f"    {model}.eval()",
            "    with torch.no_grad():",
            f"        outputs = {model}(*inputs)",
            f"    {model}.train(was_training)",
            "    return outputs",
        ]
    )


def _is_torchs(call: Call) -> bool:
    """Tell whether a port's method was given a loader or a schedule of torch's, which it only wraps."""
    return any(one.kind in (Kind.LOADER, Kind.SCHEDULER) for given in call.arguments[:1] for one in given)
