"""Draw a picture of an event: charge, true classes and predicted ones, plane by plane.

P = planes, H and W = height and width in pixels: ticks of time, and wires.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Optional, Tuple

import torch

from porting.diagnostics import require_extra
from porting.support.atomic_files import replacing_file
from porting.support.data_files import AnyPath

__all__ = ["draw_event"]

_CLASSES = ("background", "cosmic", "neutrino")
_COLOURS = ("#c8ccd0", "#2f6db5", "#d9482b")
# pixels that a plane gets in the picture; a finer plane is shrunk, since more pixels could not be seen
_SHOWN = (180, 240)


def draw_event(
    path: AnyPath,
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
    message = "a picture is asked for, and matplotlib is not installed"
    figures = require_extra("matplotlib.figure", extra="recipes", message=message)
    from matplotlib.colors import ListedColormap, LogNorm
    from matplotlib.patches import Patch

    colours = ListedColormap(["white", *_COLOURS])
    rows: List[Tuple[str, torch.Tensor]] = [("truth", labels)]
    if predicted is not None:
        rows.append(("prediction", predicted))
    num_planes = image.shape[0]
    figure = figures.Figure(figsize=(8, 0.5 + 1.45 * (len(rows) + 1)), layout="constrained")
    axes = figure.subplots(len(rows) + 1, num_planes, squeeze=False)
    for plane in range(num_planes):
        # what is not positive has no logarithm, and stays white
        scale = LogNorm(vmin=1.0, vmax=max(float(image[plane].max()), 10.0))
        _show_values(axes[0][plane], image[plane], cmap="viridis_r", norm=scale)
        axes[0][plane].set_title(f"plane {plane}", fontsize=9)
        for row, (_name, classes) in enumerate(rows, start=1):
            # 0 for nothing, and a class + 1 where there is charge or a class other than background
            is_shown = (image[plane] > 0) | (classes[plane] > 0)
            _show_values(axes[row][plane], (classes[plane] + 1) * is_shown, cmap=colours, vmin=0, vmax=3)
    for row, name in enumerate(["charge", *(name for name, _classes in rows)]):
        axes[row][0].set_ylabel(name, fontsize=9)
    handles = [Patch(color=colour, label=name) for name, colour in zip(_CLASSES, _COLOURS)]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(_CLASSES), fontsize=8, frameon=False)
    if title:
        figure.suptitle(title, fontsize=10)
    with replacing_file(path) as file:
        figure.savefig(file, format="png", dpi=100)
    return Path(path)


def _show_values(axes: Any, values: torch.Tensor, **colours: Any) -> None:
    """Show values_HW, shrunk to what can be seen with the largest of each block, so that thin tracks stay."""
    target = [min(have, shown) for have, shown in zip(values.shape, _SHOWN)]
    shown = torch.nn.functional.adaptive_max_pool2d(values.detach().float().cpu()[None], target)[0]
    axes.imshow(shown.numpy(), aspect="auto", interpolation="nearest", origin="lower", **colours)
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_color("#888888")
