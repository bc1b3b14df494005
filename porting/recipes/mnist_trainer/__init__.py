"""Digits with a trainer: `porting.fit`, with metrics and a test after each epoch, in the place of a loop."""
