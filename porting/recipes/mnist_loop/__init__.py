"""Digits with a loop by hand: two progress bars, a ragged last batch, and a test after each epoch."""
