"""Start torchtitan. Without GPUs it trains on CPUs, which torchtitan itself does not do: for practice."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import torch
import torch._utils
from torch.distributed.fsdp import FSDPModule
from torch.nn.functional import scaled_dot_product_attention

SET_DIVIDE_FACTOR = FSDPModule.set_gradient_divide_factor


def pretend_device() -> None:
    """Make the CPU what torchtitan takes for the device, with the functions that its metrics call."""
    memory = SimpleNamespace(total_memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    torch._utils._get_available_device_type = lambda: "cpu"
    torch.cpu.get_device_name = lambda _=None: "CPU"
    torch.cpu.get_device_properties = lambda _=None: memory
    torch.cpu.current_device = lambda: 0
    torch.cpu.memory_stats = lambda _=None: {}
    torch.cpu.reset_peak_memory_stats = torch.cpu.empty_cache = lambda _=None: None

    from torchtitan.models.common.attention import FlexAttention  # noqa: PLC0415 - looks for a device at once

    FlexAttention.compiled_flex_attn = staticmethod(attend)
    FSDPModule.set_gradient_divide_factor = set_divide_factor


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, scale: Any, enable_gqa: bool, **_: Any
) -> tuple[torch.Tensor, None]:
    """Attend to all tokens before, also those of another document: FlexAttention has no backward on CPUs."""
    out = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale, enable_gqa=enable_gqa)
    return out, None


def set_divide_factor(module: FSDPModule, factor: float) -> None:
    """Set the factor, and let all reductions be sums: Gloo has no other that multiplies."""
    SET_DIVIDE_FACTOR(module, factor)
    module.set_force_sum_reduction_for_comms(True)


if __name__ == "__main__":
    if not torch.cuda.is_available():
        pretend_device()
    from torchtitan.train import main

    main()
