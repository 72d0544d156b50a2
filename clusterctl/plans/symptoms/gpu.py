"""What GPUs and their driver say through torch."""

from __future__ import annotations

from clusterctl.plans.symptoms.symptom import Symptom

GPU = (
    Symptom(
        "CC-JOB-001",
        r"(CUDA|HIP|NPU|XPU) out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED"
        r"|OutOfMemoryError",
        "the GPU's memory is full",
        "Either the batch or the model is too large for this GPU, or somebody else's process holds a part "
        "of it. If only "
        "one rank runs out, look for another process on its node first.",
        "clusterctl exec --nodes {node} -- nvidia-smi",
        see="CC-GPU-015",
        restart="out_of_memory",
    ),
    Symptom(
        "CC-JOB-002",
        r"device-side assert triggered",
        "a kernel on the GPU found a value that must not be, nearly always an index out of range",
        "Labels outside of the number of classes, or tokens outside of the vocabulary, in the data of this "
        "rank. The "
        "traceback points elsewhere, because kernels run later than they are called; with "
        "CUDA_LAUNCH_BLOCKING it is exact.",
        "clusterctl launch job.yaml --set env.CUDA_LAUNCH_BLOCKING=1",
    ),
    Symptom(
        "CC-JOB-003",
        r"an illegal memory access was encountered|unspecified launch failure|misaligned address"
        r"|CUBLAS_STATUS_EXECUTION_FAILED|CUDNN_STATUS_EXECUTION_FAILED",
        "a kernel on the GPU read or wrote where it must not",
        "A bug in a CUDA extension, or a GPU that fails. If it comes back on the same node only, suspect "
        "the GPU.",
        "clusterctl exec --nodes {node} -- nvidia-smi "
        "--query-gpu=index,ecc.errors.uncorrected.volatile.total --format=csv",
        see="CC-GPU-014",
        restart="gpu",
    ),
    Symptom(
        "CC-JOB-004",
        r"uncorrectable (NVLink |ECC )error|NVRM: Xid.*: (48|63|64|74|94|95)\b",
        "the GPU's memory or its links have a fault that cannot be corrected",
        "Take the node out with --exclude; a reset or reboot may help, a second time means that the card is "
        "broken.",
        "clusterctl exec --nodes {node} -- nvidia-smi -q -d ECC,ROW_REMAPPER",
        see="CC-GPU-014",
        restart="gpu",
    ),
    Symptom(
        "CC-JOB-005",
        r"fallen off the bus|Unable to determine the device handle|NVRM: Xid.*: 79\b|GPU is lost",
        "the GPU does not answer any more",
        "A hardware fault, or heat, or power. Take the node out with --exclude and reboot it.",
        "clusterctl exec --nodes {node} -- sh -c 'nvidia-smi; dmesg | grep -i xid | tail'",
        see="CC-GPU-016",
        restart="gpu",
    ),
    Symptom(
        "CC-JOB-006",
        r"no kernel image is available for execution",
        "this torch, or an extension, was not built for this GPU",
        "The GPU is newer or older than what the wheel was compiled for. Install the wheel for your CUDA "
        "version; build "
        "extensions with TORCH_CUDA_ARCH_LIST.",
        "clusterctl check job.yaml",
    ),
    Symptom(
        "CC-JOB-007",
        r"invalid device ordinal",
        "the rank asked for a GPU that it does not see",
        "More workers than GPUs, a script that counts GPUs by the global rank instead of LOCAL_RANK, or "
        "gpus: in the job "
        "or CUDA_VISIBLE_DEVICES hiding some.",
        "clusterctl exec --nodes {node} -- nvidia-smi -L",
        see="CC-GPU-002",
    ),
    Symptom(
        "CC-JOB-008",
        r"device\(s\) is/are busy or unavailable|all CUDA-capable devices are busy",
        "the GPU takes no further process",
        "It is in exclusive mode, or a process that should be gone still holds it.",
        "clusterctl exec --nodes {node} -- nvidia-smi --query-compute-apps=pid,used_memory --format=csv",
        see="CC-GPU-011",
        restart="gpu",
    ),
    Symptom(
        "CC-JOB-009",
        r"Found no NVIDIA driver|No CUDA GPUs are available|driver version is insufficient"
        r"|not compiled with CUDA enabled"
        r"|forward compatibility was attempted|CUDA error: (system not yet initialized|initialization error)",
        "torch and the driver of this node do not come together",
        "No driver, one that is too old for this torch, one that was updated without a reboot, or a CPU "
        "build of torch.",
        "clusterctl check job.yaml",
        see="CC-GPU-005",
    ),
)
