"""Reference models: small, ordinary ones that benchmarks and recipes share."""

from __future__ import annotations

from .classifiers import make_cnn, make_mlp

__all__ = ["make_cnn", "make_mlp"]
