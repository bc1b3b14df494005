"""Port a language model of LSTMs: the state between windows of text is an input and an output of every call."""
