"""A picture of an event: charge, true classes and predicted ones, plane by plane.

P = planes, H and W = height and width in pixels: ticks of time, and wires.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, List, Optional, Tuple, Union

import torch

from porting.diagnostics import PortingError
from porting.support.atomic_files import replacing_file

__all__ = ["draw_event"]

_CLASSES = ("background", "cosmic", "neutrino")
_COLOURS = ("#c8ccd0", "#2f6db5", "#d9482b")
# pixels that a plane gets in the picture; a finer plane is shrunk, since more pixels could not be seen
_SHOWN = (180, 240)


def draw_event(
    path: Union[str, os.PathLike[str]],
    image: torch.Tensor,
    labels: torch.Tensor,
    predicted: Optional[torch.Tensor] = None,
    *,
    title: str = "",
) -> Path:
    """Draw image_PHW, labels_PHW and the `predicted` labels_PHW into a PNG file, a column for each plane; return it.

    The file is a PNG whatever its name, and there as a whole or not at all. Classes are shown where there is charge,
    and predictions of a class also where there is none. Raises PortingError X001 without matplotlib.
    """
    figure_class, canvas_class, colours = _load_matplotlib()
    rows: List[Tuple[str, torch.Tensor]] = [("truth", labels)]
    if predicted is not None:
        rows.append(("prediction", predicted))
    num_planes = image.shape[0]
    figure = figure_class(figsize=(8, 0.5 + 1.45 * (len(rows) + 1)), layout="constrained")
    canvas_class(figure)
    axes = figure.subplots(len(rows) + 1, num_planes, squeeze=False)
    for plane in range(num_planes):
        _draw_charge(axes[0][plane], image[plane], colours)
        axes[0][plane].set_title(f"plane {plane}", fontsize=9)
        for row, (_name, classes) in enumerate(rows, start=1):
            _draw_classes(axes[row][plane], classes[plane], image[plane] > 0, colours)
    for row, name in enumerate(["charge", *(name for name, _classes in rows)]):
        axes[row][0].set_ylabel(name, fontsize=9)
    handles = [colours.patch(color=colour, label=name) for name, colour in zip(_CLASSES, _COLOURS)]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(_CLASSES), fontsize=8, frameon=False)
    if title:
        figure.suptitle(title, fontsize=10)
    with replacing_file(path) as file:
        figure.savefig(file, format="png", dpi=100)
    return Path(path)


class _Colours:
    """What is needed of matplotlib to choose colours."""

    def __init__(self, listed: Any, logarithmic: Any, patch: Any) -> None:
        self.classes = listed(["white", *_COLOURS])
        self.logarithmic = logarithmic
        self.patch = patch


def _load_matplotlib() -> Tuple[Any, Any, _Colours]:
    try:
        # on its own, without the machinery that opens windows
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.colors import ListedColormap, LogNorm
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise PortingError.of(
            "X001",
            message="a picture is asked for, and matplotlib is not installed",
            help='pip install "ipu-porting[recipes]"',
        ) from error
    return Figure, FigureCanvasAgg, _Colours(ListedColormap, LogNorm, Patch)


def _draw_charge(axes: Any, charge: torch.Tensor, colours: _Colours) -> None:
    shown = _shrink_labels(charge.detach().float().cpu())
    largest = max(float(shown.max()), 10.0)
    hidden = shown.masked_fill(shown <= 0, float("nan")).numpy()
    axes.imshow(hidden, cmap="viridis_r", norm=colours.logarithmic(vmin=1.0, vmax=largest), **_LOOK)
    _strip_axes(axes)


def _draw_classes(axes: Any, classes: torch.Tensor, is_hit: torch.Tensor, colours: _Colours) -> None:
    """Show 0 for nothing, and a class + 1 where there is charge or a class other than background."""
    shown = torch.where(is_hit | (classes > 0), classes + 1, torch.zeros_like(classes))
    axes.imshow(_shrink_labels(shown.detach().float().cpu()).numpy(), cmap=colours.classes, vmin=0, vmax=3, **_LOOK)
    _strip_axes(axes)


_LOOK = {"aspect": "auto", "interpolation": "nearest", "origin": "lower"}


def _shrink_labels(values: torch.Tensor) -> torch.Tensor:
    """Shrink values_HW to what can be seen, with the largest of each block, so that thin tracks stay."""
    target = [min(have, shown) for have, shown in zip(values.shape, _SHOWN)]
    return torch.nn.functional.adaptive_max_pool2d(values[None], target)[0]


def _strip_axes(axes: Any) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_color("#888888")
