"""Port a hand-written loop over digits, with two progress bars, a ragged last batch, and a test after each epoch."""
