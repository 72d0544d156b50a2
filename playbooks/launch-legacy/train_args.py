"""A script as it was written for torch.distributed.launch: the local rank is an argument."""

from __future__ import annotations

import argparse

from line import fit


def main() -> None:
    """Read the local rank in either spelling: torch 2 passes --local-rank, older ones --local_rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--local-rank", "--local_rank", type=int, required=True)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    fit(options.local_rank, options.steps)


if __name__ == "__main__":
    main()
