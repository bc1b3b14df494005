"""The former place of `porting.buckets`: programs that import its names from here go on to run."""

from porting.buckets import Buckets, PaddingReport, choose_buckets, pad

__all__ = ["Buckets", "PaddingReport", "choose_buckets", "pad"]
