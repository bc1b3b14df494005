"""Help all packages, and know nothing of any: files, processes, fair timing, and late loading."""
