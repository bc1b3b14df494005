"""Load data in processes of every kind, each of which imports the vendor's module by its name."""

import multiprocessing
import subprocess
import sys

import poptorch
import torch
from poptorch.enums import DataLoaderMode


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        import poptorch.enums

        assert poptorch.enums.DataLoaderMode is DataLoaderMode
        return torch.tensor([float(index**2)])


def answer(options):
    import poptorch.options

    assert type(options) is poptorch.Options is poptorch.options.Options
    return options.deviceIterations(3)


def main():
    options = poptorch.Options().deviceIterations(2)
    for method in ("spawn", "forkserver", "fork"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(method, pool.apply(answer, (options,)).device_iterations)
    loader = poptorch.DataLoader(
        options, Squares(), batch_size=2, num_workers=1, mode=DataLoaderMode.Sync, multiprocessing_context="spawn"
    )
    print("workers", [batch.flatten().tolist() for batch in loader])
    command = [sys.executable, "-c", "import poptorch, sys; print('child', poptorch.Options.__module__)"]
    print(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


if __name__ == "__main__":
    main()
