"""Print each rank's numbers and NIC, and check that all ranks can exchange data.

An ordinary PyTorch script: `torchrun --standalone --nproc-per-node 2 hello.py` runs it as well.
"""

from __future__ import annotations

import os
import socket
import sys

import torch
import torch.distributed as dist


def choose_device() -> torch.device:
    """Select one GPU for this rank, or the CPU if there is none."""
    if not (torch.cuda.is_available() and dist.is_nccl_available()):
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def introduce(device: torch.device, backend: str) -> str:
    """Give host, ranks, device and NIC in one line."""
    ranks = f"rank {dist.get_rank()} of {dist.get_world_size()}, local rank {os.environ['LOCAL_RANK']}"
    node = f"node {os.environ['GROUP_RANK']}"
    nic = os.environ.get(f"{backend.upper()}_SOCKET_IFNAME", "not told")
    return f"{socket.gethostname()}: {node}, {ranks}, {device}, {backend} over {nic}"


def main() -> int:
    """Join the group and sum over all ranks; 0 if the result is right."""
    device = choose_device()
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend)
    try:
        print(introduce(device, backend), flush=True)
        total = torch.tensor([dist.get_rank() + 1.0], device=device)
        dist.all_reduce(total)
        size = dist.get_world_size()
        expected = size * (size + 1) / 2
        if dist.get_rank() == 0:
            print(f"all_reduce over {size} ranks: {total.item():g}, expected {expected:g}", flush=True)
        return 0 if total.item() == expected else 1
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
