"""Port digits with a trainer: `porting.fit`, with metrics and a test after each epoch, replaces a loop."""
