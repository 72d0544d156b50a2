"""Which reason the nodes read out of what a rank said; they have no other table."""

from __future__ import annotations

import re

import pytest

from clusterctl.plans.runs.root_cause import restart_texts


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "out_of_memory"),
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory",
            "out_of_memory",
        ),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "gpu"),
        ("RuntimeError: Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost", "gpu"),
        ("OSError: [Errno 98] Address already in use", "port_taken"),
        ("NET/IB : Got completion from peer 10.0.0.2<4711> with status=12 opcode=0", "network"),
        (
            "RuntimeError: [../gloo/transport/tcp/pair.cc] Connection closed by peer [10.0.0.3]:4711",
            "secondary",
        ),
        ("[Rank 3] Watchdog caught collective operation timeout", "secondary"),
        ("ModuleNotFoundError: No module named 'einops'", "code"),
        ("OSError: [Errno 28] No space left on device", "code"),
        ("ValueError: learning rate", None),
    ],
)
def test_a_text_has_its_reason(said: str, word: str | None) -> None:
    """The first text of the table that fits counts, without regard to case."""
    found = (word for word, pattern in restart_texts() if re.search(pattern, said, re.IGNORECASE))

    assert next(found, None) == word
