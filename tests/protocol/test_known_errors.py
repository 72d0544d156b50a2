"""Known texts of ranks: each leads to its code, and the command to paste is whole."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import pytest

from clusterctl.codes.lookup import entries, family_of
from clusterctl.plans.checks.registry import all_checks
from clusterctl.plans.runs.verdict import render_command
from clusterctl.protocol.known_errors import SymptomMatch, all_symptoms, recognise
from clusterctl.translation import to_chinese

# What torch, NCCL, Gloo, CUDA, Python and the kernel really print, cut to the telling part.
TEXTS = {
    "CC-JOB-001": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity",
    "CC-JOB-002": "RuntimeError: CUDA error: device-side assert triggered",
    "CC-JOB-003": "RuntimeError: CUDA error: an illegal memory access was encountered",
    "CC-JOB-004": "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "CC-JOB-005": "RuntimeError: Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error",
    "CC-JOB-006": "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    "CC-JOB-007": "RuntimeError: CUDA error: invalid device ordinal",
    "CC-JOB-008": "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
    "CC-JOB-009": "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
    "CC-JOB-010": "ModuleNotFoundError: No module named 'timm'",
    "CC-JOB-011": "ImportError: cannot import name 'x' from partially initialized module 'random' "
    "(most likely due to a circular import) (/code/random.py)",
    "CC-JOB-012": "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
    "CC-JOB-013": "RuntimeError: DataLoader worker (pid(s) 4711) exited unexpectedly",
    "CC-JOB-014": "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: X",
    "CC-JOB-015": "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.",
    "CC-JOB-016": "PermissionError: [Errno 13] Permission denied: '/data/train'",
    "CC-JOB-017": "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'",
    "CC-JOB-018": "RuntimeError: [enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory",
    "CC-JOB-019": "ConnectionResetError: [Errno 104] Connection reset by peer",
    "CC-JOB-020": "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that "
    "dataloader's workers are out of shared memory.",
    "CC-JOB-021": "OSError: [Errno 28] No space left on device: '/data/out'",
    "CC-JOB-022": "OSError: [Errno 122] Disk quota exceeded",
    "CC-JOB-023": "OSError: [Errno 24] Too many open files: '/dev/null'",
    "CC-JOB-024": "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
    "address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
    "CC-JOB-025": "BlockingIOError: [Errno 11] Resource temporarily unavailable",
    "CC-JOB-026": "torch.distributed.DistBackendError: NCCL WARN Call to ibv_reg_mr failed",
    "CC-JOB-027": "OSError: [Errno 116] Stale file handle: '/home/ann/data'",
    "CC-JOB-030": "RuntimeError: [enforce fail at device.cc:84] ifa != nullptr. Unable to find address for: eth7",
    "CC-JOB-031": "RuntimeError: Gloo connectFullMesh failed with [pair.cc:152] timed out connecting: SO_ERROR: "
    "Connection refused, remote=[127.0.0.1]:2343",
    "CC-JOB-032": "torch.distributed.DistNetworkError: The client socket has timed out after 12000ms while trying to "
    "connect to (10.99.7.1, 29500).",
    "CC-JOB-033": "torch.distributed.DistStoreError: Timed out after 13 seconds. 1/2 clients joined.",
    "CC-JOB-034": "RuntimeError: NET/IB : Got completion from peer 10.0.0.2<4242> with error 12, opcode 0, len 0, "
    "vendor err 129",
    "CC-JOB-035": "torch.distributed.DistBackendError: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device",
    "CC-JOB-036": "torch.distributed.DistBackendError: Mismatched NCCL version detected : rank 0 version 22703",
    "CC-JOB-037": "torch.distributed.DistBackendError: NCCL error in: x.cpp, unhandled system error, NCCL version 2.21",
    "CC-JOB-038": "torch.distributed.DistBackendError: NCCL error in: x.cpp, unhandled cuda error, NCCL version 2.21.5",
    "CC-JOB-039": "RuntimeError: Distributed package doesn't have MPI built in",
    "CC-JOB-050": "RuntimeError: [unbound_buffer.cc:78] Timed out waiting 4000ms for recv operation to complete",
    "CC-JOB-052": "RuntimeError: [pair.cc:537] Connection closed by peer [10.0.0.2]:4242. This is typically caused by",
    "CC-JOB-060": "cannot start accelerate: [Errno 2] No such file or directory",
    "CC-JOB-061": "train.py: error: unrecognized arguments: --local-rank=0",
    "CC-JOB-062": "RuntimeError: operator torchvision::nms does not exist",
    "CC-JOB-063": "ModuleNotFoundError: No module named 'torch._six'",
    "CC-JOB-065": "bdb.BdbQuit",
    "CC-JOB-066": "clusterctl: Ray ended with exit code 1 on gpu02 (10.0.0.2)",
    "CC-JOB-068": "clusterctl: orted on gpu02 ended: -9",
    "CC-JOB-067": "ray.exceptions.ActorDiedError: The actor died because its node has died.",
    "CC-JOB-069": "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
    "CC-JOB-070": "ValueError: Default process group has not been initialized, please make sure to call "
    "init_process_group.",
    "CC-JOB-071": "RuntimeError: No rendezvous handler for ://",
    "CC-JOB-072": "ValueError: SyncBatchNorm layers only work with GPU modules",
    "CC-JOB-064": "FileNotFoundError: [Errno 2] No such file or directory: '/out/step-100/.metadata'",
}
SIGNALS = {
    "CC-JOB-041": signal.SIGKILL,
    "CC-JOB-042": signal.SIGSEGV,
    "CC-JOB-043": signal.SIGBUS,
    "CC-JOB-044": signal.SIGABRT,
    "CC-JOB-045": signal.SIGTERM,
    "CC-JOB-046": signal.SIGILL,
}
# Texts that other errors share: the script's line that raised them decides.
BY_SOURCE = {
    "CC-JOB-073": (
        "local_rank = int(args.local_rank)",
        "TypeError: int() argument must be a string, a bytes-like object or a real number, not 'NoneType'",
    ),
    "CC-JOB-074": (
        "local_rank = rank % torch.cuda.device_count()",
        "ZeroDivisionError: integer modulo by zero",
    ),
}
BY_OTHER_SIGNS = {"CC-JOB-040", "CC-JOB-053"}  # the kernel's counter; a rank that ended with 0


def find(text: str, tail: Sequence[str], number: int | None, source: str = "") -> SymptomMatch:
    """Return what is known of an end, which is something."""
    known = recognise(text, tail, number, source)
    assert known is not None
    return known


@pytest.mark.parametrize("code", TEXTS)
def test_a_text_leads_to_its_code(code: str) -> None:
    """As an exception, and in the last lines of a rank that has none."""
    for known in (find(TEXTS[code], (), None), find("", ("step 3", TEXTS[code]), signal.SIGABRT)):
        assert known.symptom.code == code


@pytest.mark.parametrize("code", BY_SOURCE)
def test_a_common_text_needs_the_line_that_raised_it(code: str) -> None:
    """Without that line, as in the last lines of a rank, and with another line nothing is claimed."""
    source, text = BY_SOURCE[code]
    known = find(text, (), None, source)
    assert known.symptom.code == code
    assert recognise(text, (), None) is None
    assert recognise(text, (), None, "total = int(config.steps) / config.batches") is None
    assert recognise("", (source, text), None) is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("RuntimeError: Distributed package doesn't have NCCL built in", "CC-JOB-069"),
        ("AttributeError: module 'torch' has no attribute '_six'", "CC-JOB-063"),
        ("ImportError: cannot import name '_six' from 'torch' (/opt/torch/__init__.py)", "CC-JOB-063"),
        ("RuntimeError: No rendezvous handler for localhost://", "CC-JOB-071"),
        ("ValueError: SyncBatchNorm expected input tensor to be on GPU or XPU", "CC-JOB-072"),
    ],
)
def test_other_words_for_the_same(text: str, code: str) -> None:
    """What torch prints for the same mistake elsewhere, or in another version."""
    known = find(text, (), None)
    assert known.symptom.code == code


def test_the_advice_for_six_replaces_the_name_where_it_is_used() -> None:
    """A script that has no import of it has nothing to remove."""
    advice = entries()["CC-JOB-063"].do
    for text in (advice, to_chinese(advice)):
        assert "`torch._six.string_classes`" in text
        assert "`str`" in text


def test_a_silent_death_is_known_by_its_signal() -> None:
    """Without a word, or with words that are not known."""
    for code, number in SIGNALS.items():
        known = find("", ("step 3",), number)
        assert known.symptom.code == code


def test_an_abort_after_the_last_line_has_its_way_out() -> None:
    """A script that leaves its process group behind may abort at its end; the advice names the call that it lacks."""
    tail = ("Done", "terminate called without an active exception")
    known = find("", tail, signal.SIGABRT)
    assert known.symptom.code == "CC-JOB-044"
    advice = entries()[known.symptom.code].do
    assert f"`{tail[-1]}`" in advice
    assert "destroy_process_group()" in advice


def test_own_words_are_not_known() -> None:
    """What a script raises by itself has no code; nor has an exit without a word."""
    assert recognise("ValueError: bad batch 17", ("Permission denied: x",), None) is None
    assert recognise("", (), None) is None


def test_every_symptom_is_tried_here_once() -> None:
    """One code has one meaning, and one of these tests."""
    assert [one.code for one in all_symptoms()] == sorted({*TEXTS, *SIGNALS, *BY_SOURCE, *BY_OTHER_SIGNS})


def test_every_symptom_can_be_told() -> None:
    """It has a meaning, advice, a check that exists if it names one, and a command that needs no name it may lack."""
    assert [code for code in entries() if family_of(code) == "JOB"] == [one.code for one in all_symptoms()]
    for code in (one.code for one in all_symptoms()):
        one = entries()[code]
        assert one.title
        assert one.do.endswith(".")
        assert not one.related or one.related in all_checks()
        needed = {"node": "gpu02", "rank": "1", "run": "r"}
        given = {
            "CC-JOB-010": {"module": "m"},
            "CC-JOB-016": {"path": "/p"},
            "CC-JOB-017": {"path": "/p"},
            "CC-JOB-060": {"program": "accelerate"},
            "CC-JOB-064": {"folder": "/out/step-100"},
        }
        filled = render_command(code, {**needed, **given.get(code, {})})
        assert bool(filled) == bool(one.command)
        assert filled.startswith("clusterctl ") or not filled


def test_what_a_node_says_cannot_leave_its_quotes() -> None:
    """A path that would end the quotes of the command to paste is not taken."""
    known = find('FileNotFoundError: [Errno 2] No such file or directory: "/d\'; rm -rf x"', (), None)
    assert render_command(known.symptom.code, {**known.values, "node": "n"}) == ""


@pytest.mark.parametrize(
    "line",
    [
        "cannot start accelerate: [Errno 2] No such file or directory",
        "cannot start ./train.sh: [Errno 13] Permission denied",
        "./train.sh: line 3: torchrun: command not found",  # bash
        "./train.sh: 3: torchrun: not found",  # dash
    ],
)
def test_a_program_that_is_not_there_is_named(line: str) -> None:
    """Whoever looked for it: clusterctl's own start, or a shell."""
    known = find("", ("step 3", line), None)
    assert known.symptom.code == "CC-JOB-060"
    assert known.values["program"] in ("accelerate", "./train.sh", "torchrun")
