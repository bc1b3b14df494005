"""Format names in a row, numbers of things and tables of text, for all messages and reports."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Container, Iterable, List, Optional, Sequence, Tuple

__all__ = [
    "advise_on_autograd",
    "align_columns",
    "join_names",
    "say_kind",
    "say_number",
    "suggest_file",
    "suggest_name",
    "take_first_line",
]

_ON_AUTOGRAD = {
    "grad": (
        "keep the loop on the host, and compute this loss with the plain model: `to_ipu(model, loop='host')`, "
        "`ported.model(x)`",
        "on the simulator alone: `torch.func.grad(lambda x: self.net(x).sum())(x)`, which has a gradient itself",
    ),
    "backward": ("return the loss and let the training model differentiate it",),
    "retain_grad": ("leave it out: of gradients the device keeps those of parameters",),
}
_ON_HOOKS = ("compute in `forward` what it does to the gradient: `x * scale + (x - x * scale).detach()` scales it",)


def advise_on_autograd(name: str) -> Tuple[str, ...]:
    """Return the advice for a function of autograd inside `forward`, by its name or that of its method.

    >>> advise_on_autograd("Tensor.backward")
    ('return the loss and let the training model differentiate it',)
    """
    return _ON_AUTOGRAD.get(name.rpartition(".")[2], _ON_HOOKS)


def join_names(names: Iterable[object], *, most: Optional[int] = None, quote: str = "`") -> str:
    """Join names with commas, at most `most` of them, with the number of the others.

    >>> join_names(["a", "b"]), join_names("abcd", most=3, quote="")
    ('`a`, `b`', 'a, b, c and 1 more')
    """
    listed = [f"{quote}{name}{quote}" for name in names]
    shown = listed[:most]
    return ", ".join(shown) + (f" and {len(listed) - len(shown)} more" if len(shown) < len(listed) else "")


def say_number(number: int, noun: str) -> str:
    """Format a number with its noun.

    >>> say_number(1, "check"), say_number(2, "check")
    ('1 check', '2 checks')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def say_kind(value: object) -> str:
    """Name the type of an object with its article.

    >>> say_kind(5), say_kind({})
    ('an int', 'a dict')
    """
    name = type(value).__name__
    return f"an {name}" if name[:1] in "aeioAEIO" else f"a {name}"


def suggest_name(wanted: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """Ask whether the nearest of the known names was meant, or one that begins so; `otherwise` if none is near.

    >>> suggest_name("mushroom", ["mushrooms", "cnn"]), suggest_name("gpt2", ["gpt2_small"]), suggest_name("x", ["cnn"])
    ('did you mean `mushrooms`?', 'did you mean `gpt2_small`?', '')
    """
    near = _find_near(wanted, list(known))
    return otherwise if near is None else f"did you mean `{near}`?"


def suggest_file(path: object, *, otherwise: str = "") -> str:
    """Ask whether the nearest file of the same folder and ending was meant; `otherwise` if there is none.

    >>> suggest_file("/no such folder/trian.py", otherwise="check the path")
    'check the path'
    """
    wanted = Path(str(path))
    try:
        files = {file.stem: file for file in sorted(wanted.parent.glob(f"*{wanted.suffix}")) if file.is_file()}
    except (OSError, ValueError):  # of a name with a zero byte
        files = {}
    near = _find_near(wanted.stem, files)
    return otherwise if near is None else f"did you mean `{files[near]}`?"


def take_first_line(error: object, *, otherwise: str = "") -> str:
    """Return the first line of an error's message, or `otherwise` if it has none.

    >>> take_first_line(ValueError("too long"), otherwise="no details"), take_first_line(ValueError())
    ('too long', '')
    """
    return (str(error).strip().splitlines() or [otherwise])[0]


def align_columns(rows: Sequence[Sequence[str]], *, right: Container[int] = ()) -> List[str]:
    """Format a table, a line for each row; the columns with the numbers `right` are right-aligned.

    >>> align_columns([("step", "bytes"), ("forward", "8")], right={1})
    ['step     bytes', 'forward      8']
    """
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]


def _find_near(wanted: str, names: Iterable[str]) -> Optional[str]:
    lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(wanted.lower(), lower, n=1)
    if near:
        return lower[near[0]]
    return next((name for name in lower.values() if wanted and name.startswith(wanted)), None)
