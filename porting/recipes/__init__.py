"""Port programs step by step: each recipe is a folder, and each of its steps changes a few lines of the one before."""

from __future__ import annotations

from porting.aliases import stand_for

if __name__ == "recipes":  # by the link at the top of a clone
    stand_for(__name__, "porting.recipes")
