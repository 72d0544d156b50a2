"""GPUs: CC-GPU."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Same

ENTRIES: Mapping[str, Entry] = {
    "CC-GPU-001": Entry(
        "error",
        "no GPU was found",
        why="The job needs GPUs: torchrun or NCCL would fail on this node, and all other nodes would wait for it.",
        what="The job needs GPUs (`backend: nccl` or `nproc_per_node: gpu`), but the node has none. If the machine has no GPU, leave the node out (`--exclude`) or train on CPUs: `backend: gloo` and `nproc_per_node: cpu` or a number. If it has one, install the driver, or give the container access to the GPU.",
        do="Install the driver, give the container access to the GPU, leave the node out (`--exclude`), or use `backend: gloo` with a number as `nproc_per_node`",
        cases={
            "": Case(fix="add --exclude {node}"),
            "no-gpus": Case(fix="job: {changes}  # uses CPUs"),
        },
    ),
    "CC-GPU-002": Entry(
        "error",
        "fewer GPUs than processes",
        why="NCCL refuses two processes on one GPU, and a process without a GPU ends with `invalid device ordinal`.",
        what="`nproc_per_node` is larger than the number of GPUs that this node has, that the inventory allows on it, or that the job selects. `nproc_per_node: gpu` uses as many as each node has.",
        do="Set a smaller `nproc_per_node`, or `gpu`",
        cases={
            "": Case(fix="job: nproc_per_node: {usable}  # or gpu"),
        },
    ),
    "CC-GPU-003": Entry(
        "error",
        "GPUs are missing",
        why="The inventory lists more GPUs than the node has: one may have failed, or the number is wrong.",
        what="The inventory's `gpus:` is larger than the number that nvidia-smi lists. A GPU that fell off the bus is gone until a reboot; the kernel log then has an `NVRM: Xid` line. If the machine never had that many, correct the inventory.",
        do="Look for `Xid` in `dmesg`; a GPU that fell off the bus needs a reboot. Otherwise correct `gpus:`",
        cases={
            "": Case(fix="inventory, node {node}: gpus: {count}  # or look for Xid in `dmesg`"),
        },
    ),
    "CC-GPU-004": Entry(
        "error",
        "driver and library versions do not match",
        why="The driver was upgraded but the old one is still loaded: no program can use the GPUs until a reboot.",
        what="The kernel runs one version of the NVIDIA driver, and the libraries on disk are of another version. Usually unattended upgrades replaced the driver. Reboot the node, or unload and load the kernel modules while no program uses them. To prevent it, hold the driver's packages.",
        do="Reboot the node, and hold the driver's packages",
        cases={
            "": Case(fix=Same("# reboot")),
        },
        texts=("Failed to initialize NVML: Driver/library version mismatch",),
    ),
    "CC-GPU-005": Entry(
        "error",
        "the driver is too old for torch",
        why="This torch's CUDA needs a newer driver: the first use of a GPU fails with error 35.",
        what="The NVIDIA driver is older than the CUDA version of this torch requires. CUDA 12 needs driver 525 or later, CUDA 13 needs 580. Upgrade the driver, or install a torch that was built for an older CUDA.",
        do="Upgrade the driver, or install a torch for an older CUDA",
        cases={
            "": Case(
                fix="install driver {oldest} or later, or a torch for an older CUDA (its version ends in +cuNNN)"
            ),
        },
        texts=("CUDA driver version is insufficient for CUDA runtime version",),
    ),
    "CC-GPU-006": Entry(
        "warning",
        "driver versions differ",
        why="Mixed driver branches are rarely tested together, and problems on one node are hard to explain.",
        what="The nodes run different branches of the NVIDIA driver (the first number of its version).",
        do="Install the same branch on all nodes if possible",
        cases={
            "": Case(fix="install driver {version} there, or {exclude}"),
            "any": Case(fix="install the same driver there, or {exclude}"),
        },
    ),
    "CC-GPU-007": Entry(
        "warning",
        "GPU models differ",
        why="The slowest GPU sets the speed of all, and the smallest runs out of memory first.",
        what="The nodes do not have the same GPU model. This works, at the speed of the slowest GPU.",
        do="Nothing to do; for full speed select nodes of the same model with `--nodes`",
        cases={
            "": Case(fix="use a batch size that fits in the smallest GPU's memory, or {exclude}"),
            "any": Case(fix="use a batch size that fits in the smallest GPU's memory"),
        },
    ),
    "CC-GPU-008": Entry(
        "warning",
        "numbers of workers differ",
        why="The nodes will run different numbers of processes; code that assumes the same number on all nodes fails.",
        what="With `nproc_per_node: gpu` each node runs as many processes as it has GPUs that it may use, and these numbers differ. With `cpu` the same applies to CPU cores. torchrun and DDP allow this, and WORLD_SIZE is the sum. Code that computes ranks as node_rank * LOCAL_WORLD_SIZE + local_rank does not work with it.",
        do="Set `nproc_per_node` to a number that every node has",
        cases={
            "": Case(fix="job: nproc_per_node: N  # a number that every node has"),
        },
    ),
    "CC-GPU-009": Entry(
        "error",
        "nvidia-smi failed",
        why="If nvidia-smi fails or hangs, a GPU or the driver is faulty; training on this node fails or hangs too.",
        what='nvidia-smi ended with an error, reported a failing device, or did not respond within 5 seconds. "Unable to determine the device handle" and "GPU is lost" mean that a GPU fell off the bus: reboot, and have the GPU replaced if it happens again. The same applies if nvidia-smi hangs.',
        do="Check the Xid lines of `dmesg`, and reboot; if it happens again, replace the GPU",
        cases={
            "": Case(fix=Same("$ nvidia-smi; dmesg | grep -i xid | tail")),
        },
        texts=(
            "Unable to determine the device handle",
            "GPU is lost",
        ),
    ),
    "CC-GPU-010": Entry(
        "info",
        "more GPUs than the inventory allows",
        why="Only the number of GPUs in the inventory is used.",
        what="The node has more GPUs than the inventory's `gpus:`; the others stay idle.",
        do="Nothing to do, or set a larger `gpus:` in the inventory",
        cases={
            "": Case(fix="inventory, node {node}: gpus: {count}"),
        },
    ),
    "CC-GPU-011": Entry(
        "error",
        "the GPU's compute mode forbids use",
        why="In mode Prohibited no process may use the GPU.",
        what="`nvidia-smi -c 0` sets compute mode Default; it needs root and lasts until the next reboot.",
        do="Run `sudo nvidia-smi -c 0`, as shown",
        cases={
            "": Case(fix=Same("# nvidia-smi -c 0")),
        },
    ),
    "CC-GPU-012": Entry(
        "warning",
        "the GPU allows only one process",
        why="In an exclusive mode a second process, such as a leftover one, gets the error `busy or unavailable`.",
        what="The compute mode is exclusive: one process per GPU works, a second one fails with CUDA error 46.",
        do="Run `sudo nvidia-smi -c 0`, and check which process uses the GPU",
        cases={
            "": Case(fix=Same("# nvidia-smi -c 0")),
        },
    ),
    "CC-GPU-013": Entry(
        "warning",
        "MIG is enabled",
        why="The GPU is split into instances: torch sees other devices than nvidia-smi lists, and NCCL is limited.",
        what="Multi-Instance GPU splits a GPU. A process uses one instance; NCCL between instances is limited.",
        do="Run `sudo nvidia-smi -mig 0`, or select instances by UUID",
        cases={
            "": Case(fix=Same("# nvidia-smi -mig 0")),
        },
    ),
    "CC-GPU-014": Entry(
        "warning",
        "uncorrectable GPU memory errors",
        why="GPU memory has lost data since the driver was loaded; a job on it may crash or compute wrong results.",
        what="ECC counted errors that it could not correct. A reset of the GPU or a reboot retires the affected pages; if the count rises again, replace the GPU.",
        do="Reset the GPU or reboot; if the count rises again, replace it",
        cases={
            "": Case(fix=Same("# nvidia-smi --gpu-reset")),
        },
    ),
    "CC-GPU-015": Entry(
        "warning",
        "GPU memory is in use",
        why="Other processes use these GPUs: the job may run out of memory, or both run slowly.",
        what="More than 512 MiB of a GPU's memory is in use before the job starts; with `gpus:` only those GPUs count. The process may be another user's, or left over from a crashed run. Memory that belongs to no listed process is used by a process in another container, or by one that is still exiting.",
        do="Find the process: `clusterctl exec -- nvidia-smi`; `clusterctl clean --orphans`",
        cases={
            "": Case(
                fix=Same(
                    "$ nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv"
                )
            ),
        },
    ),
    "CC-GPU-016": Entry(
        "warning",
        "a GPU does not respond",
        why="The kernel has a device file for a GPU that nvidia-smi does not list: it may have fallen off the bus.",
        what="There are more /dev/nvidiaN files than GPUs in the list. The kernel log shows the reason (`NVRM: Xid`).",
        do="Check the Xid lines of `dmesg`, and reboot",
        cases={
            "": Case(fix=Same("$ dmesg | grep -i xid | tail")),
        },
    ),
    "CC-GPU-017": Entry(
        "warning",
        "some GPUs are hidden",
        why="torch sees only the GPUs in this variable, whatever nvidia-smi lists.",
        what="The environment of an SSH session on the node already limits the visible GPUs. A process beyond their number ends with `invalid device ordinal`. Remove the variable from the node's startup files, or set it in the job's `env:`.",
        do="Remove `CUDA_VISIBLE_DEVICES` from the node's startup files, or set it in `env:`",
        cases={
            "": Case(fix=Same("$ grep -rn VISIBLE_DEVICES ~/.bashrc ~/.profile /etc/environment")),
        },
    ),
    "CC-GPU-018": Entry(
        "error",
        "a selected GPU does not exist",
        why="CUDA ignores its list of visible devices from the first missing one on: some workers would have no GPU.",
        what="The job's `gpus:` contains an index that nvidia-smi does not list on this node, or one beyond the number that the inventory allows. Indices count from 0 and are the same on all nodes; leave out a node that lacks them (`--exclude`).",
        do="Correct `gpus:` of the job, or leave the node out with `--exclude`",
        cases={
            "": Case(fix="add --exclude {node}"),
            "count": Case(fix="inventory, node {node}: gpus: {count}"),
        },
    ),
    "CC-GPU-019": Entry(
        "warning",
        "another run uses the GPUs",
        why="A launch on these GPUs is refused until that run has ended; `launch --wait` waits for it.",
        what="A run of clusterctl, of any account on the node, has locked these GPUs; the record of the lock shows the owner. `clusterctl ps` lists runs of this account, `stop RUN` stops one. If the holder does not respond, it is a frozen agent or not a clusterctl process at all; its pid and account then come from the kernel.",
        do="Use `clusterctl launch --wait`, other GPUs or nodes, or `stop` that run; see [sharing GPUs](../sharing.md#gpus-that-others-use)",
        cases={
            "": Case(fix="clusterctl launch --wait, or stop that run, or select other GPUs or nodes"),
        },
    ),
    "CC-GPU-020": Entry(
        "warning",
        "the kernel has reported GPU errors",
        why="The hardware has failed since the last boot, and may fail again during a run.",
        what="Since boot, the kernel log has Xid reports of kinds that hardware causes. 79 and 119 need a reboot, memory errors a reset of the GPU; if they come back, replace the GPU. Reports that programs cause (such as 13, 31, 43) are ignored. If an ordinary user may not read the log, nothing is reported: use `sudo dmesg | grep -i xid`.",
        do="Check the lines: 79 and 119 need a reboot, memory errors a reset",
        cases={
            "": Case(fix=Same("$ dmesg | grep -i xid | tail")),
        },
    ),
    "CC-GPU-021": Entry(
        "warning",
        "GPU memory needs a reset to replace bad rows",
        why="Bad rows of memory are replaced at the next reset; until then an error in them ends the job.",
        what="The GPU has found bad rows of memory and replaces them with spare ones when it is reset, or at a reboot.",
        do="Run `sudo nvidia-smi --gpu-reset` while no process uses the GPU, or reboot",
        cases={
            "": Case(fix=Same("# nvidia-smi --gpu-reset")),
        },
    ),
    "CC-GPU-022": Entry(
        "error",
        "GPU memory cannot be repaired",
        why="No spare rows are left for the bad ones: jobs on this GPU crash, or compute wrong results.",
        what="A bad row of memory could not be replaced (Xid 64). The GPU must be replaced; use the others with `gpus:`.",
        do="Select the other GPUs with `gpus:`, and replace this one",
        cases={
            "": Case(fix="add --exclude {node}, or select other GPUs with `gpus:` in the job"),
        },
    ),
    "CC-GPU-023": Entry(
        "warning",
        "GPU clocks are throttled",
        why="The GPU runs below its normal clock, and the slowest GPU sets the speed of all.",
        what="The GPU's clocks are lowered right now, because it is too hot or because of the power supply. Check fans, air flow, water cooling and power supplies. A power cap set by software is not reported: GPUs under load normally run at it.",
        do="Check fans, air flow and power supply: `nvidia-smi -q -d TEMPERATURE,POWER,PERFORMANCE`",
        cases={
            "": Case(fix=Same("$ nvidia-smi -q -d TEMPERATURE,POWER,PERFORMANCE")),
        },
    ),
    "CC-GPU-024": Entry(
        "error",
        "the NVSwitch fabric is not ready",
        why="CUDA fails with error 802, system not yet initialized, until the Fabric Manager has set up the switches.",
        what="The GPUs are connected by NVSwitches, and the Fabric Manager has not finished or is not running. Its version must match the driver: upgrade both together.",
        do="Run `sudo systemctl restart nvidia-fabricmanager`; its version must match the driver",
        cases={
            "": Case(fix=Same("# systemctl restart nvidia-fabricmanager")),
        },
        texts=("CUDA error 802: system not yet initialized",),
    ),
    "CC-GPU-025": Entry(
        "warning",
        "NVLinks are down",
        why="Data for NVLink goes over PCIe instead, many times slower, or NCCL fails.",
        what="Only some of a GPU's NVLinks are active, or a GPU has fewer active ones than other GPUs of the same model. If no GPU has an active link, the node has no NVLink bridge or switch, and nothing is reported.",
        do="Check `nvidia-smi nvlink -s`; reseat the bridge, or have it repaired",
        cases={
            "": Case(fix=Same("$ nvidia-smi nvlink -s; nvidia-smi nvlink -e")),
        },
    ),
    "CC-GPU-026": Entry(
        "warning",
        "a GPU uses fewer PCIe lanes than possible",
        why="Transfers between this GPU and memory or network reach only a part of the speed.",
        what="The link between the GPU and the board is narrower than both support: the card or a riser is not seated well. Some boards are designed this way: then waive this finding.",
        do="Reseat the card or the riser; if the board is designed this way, `waive` it",
        cases={
            "": Case(fix=Same("$ nvidia-smi --query-gpu=index,pcie.link.width.current --format=csv")),
        },
    ),
    "CC-GPU-027": Entry(
        "error",
        "torch has no code for this GPU",
        why="The first kernel ends with `no kernel image is available for execution on the device`.",
        what="torch's wheels contain code for some generations of GPUs: those for CUDA 13 none before Turing (7.5), and only those for CUDA 12.8 and later have Blackwell (10.0, 12.0). Install a torch for another CUDA, or build it for this GPU.",
        do="Install a torch for another CUDA (12.8 or later for Blackwell), or build it",
        cases={
            "": Case(
                fix="install a torch whose CUDA supports this GPU: pip install torch --index-url .../whl/cuNNN"
            ),
        },
    ),
    "CC-GPU-028": Entry(
        "info",
        "persistence mode is off",
        why="The driver unloads when no process uses the GPU: every start, and every nvidia-smi, then takes seconds.",
        what="With persistence mode the driver stays loaded. It needs root, and lasts until the next boot; nvidia-persistenced makes it permanent.",
        do="Run `sudo nvidia-smi -pm 1`",
        cases={
            "": Case(fix=Same("# nvidia-smi -pm 1")),
        },
    ),
}
