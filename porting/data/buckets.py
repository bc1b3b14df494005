"""Keep the former place of `porting.buckets`, so that programs that import its names from here still run."""

from porting.buckets import Buckets, PaddingReport, choose_buckets, pad

__all__ = ["Buckets", "PaddingReport", "choose_buckets", "pad"]
