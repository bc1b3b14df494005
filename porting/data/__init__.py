"""Read real data files, and generate learnable data that can replace them: seeded, offline."""
