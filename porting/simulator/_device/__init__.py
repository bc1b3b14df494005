"""Simulate the device: these modules choose it, hand it out to executors, and keep what is on it."""
