"""The same script after the advice of torch's deprecation notice: the local rank is in the environment."""

from __future__ import annotations

import argparse
import os

from line import fit


def main() -> None:
    """Read LOCAL_RANK, which torch.distributed.launch and torchrun both set."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    fit(int(os.environ["LOCAL_RANK"]), parser.parse_args().steps)


if __name__ == "__main__":
    main()
