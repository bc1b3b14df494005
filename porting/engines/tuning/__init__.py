"""Find the fastest way to run a step, by measuring those that agree with replay."""
