"""Readers of real data files, and generators of learnable data that stand in for them: seeded, offline."""
