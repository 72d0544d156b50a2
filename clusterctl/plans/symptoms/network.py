"""What Gloo, NCCL and the c10d store say: some of it is a cause, most of it tells that another rank is gone."""

from __future__ import annotations

from clusterctl.plans.symptoms.symptom import Symptom

_SHOW = "clusterctl launch job.yaml --set env.NCCL_DEBUG=INFO"

NETWORK = (
    Symptom(
        "CC-JOB-030",
        r"Unable to find address for: (?P<nic>\S+)|no socket interface found|Unable to find interface",
        "this node does not have the NIC that Gloo or NCCL was told to use",
        "nic: in the inventory is wrong for this node, or a variable in env: overrides it. Names may differ "
        "per node.",
        "clusterctl check job.yaml",
        see="CC-NET-001",
    ),
    Symptom(
        "CC-JOB-035",
        r"Duplicate GPU detected|Multiple Ranks are using the same GPU",
        "two ranks use the same GPU",
        "The script does not choose its GPU by LOCAL_RANK: "
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK'])).",
    ),
    Symptom(
        "CC-JOB-036",
        r"Mismatched NCCL version",
        "the nodes have different versions of NCCL",
        "The same torch on every node, and no LD_LIBRARY_PATH or LD_PRELOAD that brings another NCCL.",
        "clusterctl check job.yaml",
        see="CC-TORCH-004",
    ),
    Symptom(
        "CC-JOB-034",
        r"Got completion from peer .* with (status|error) ?=?\s?\d+|ibv_modify_qp\w* failed"
        r"|connect incompatible devices"
        r"|IBV_WC_\w+_ERR",
        "InfiniBand or RoCE between the nodes does not work",
        "A port that is down, another subnet, GID or MTU. As a test: env: {NCCL_IB_DISABLE: 1} goes over "
        "TCP.",
        "clusterctl exec -- sh -c 'grep . /sys/class/infiniband/*/ports/*/state'",
        grade="doubtful",
        restart="network",
    ),
    Symptom(
        "CC-JOB-039",
        r"Distributed package doesn't have (NCCL|MPI) built in|Name or service not known"
        r"|Temporary failure in name resolution",
        "this node lacks what the script asks for: a build of torch with that backend, or a name that "
        "resolves",
        "backend: gloo for a CPU build; an address instead of a name; no downloads from nodes without a way "
        "out.",
        "clusterctl check job.yaml",
        see="CC-TORCH-006",
    ),
    Symptom(
        "CC-JOB-038",
        r"NCCL (error|WARN).{0,400}unhandled cuda error|ncclUnhandledCudaError|ncclInvalidUsage"
        r"|ncclInvalidArgument",
        "NCCL cannot use the GPU, or is used wrongly",
        "NCCL's own lines name what failed; they come with NCCL_DEBUG.",
        _SHOW,
    ),
)

# What a rank writes when others do not come, or went away. The order matters: the more telling first.
FOLLOWING = (
    Symptom(
        "CC-JOB-050",
        r"watchdog caught collective operation timeout|WorkNCCL\(.*Timeout\(ms\)"
        r"|Timed out waiting \d+ms for( \w+ operation)?"
        r"|failed to pass monitoredBarrier|timed out in monitoredBarrier"
        r"|Application timeout caused pair closure",
        "the others waited for a rank that did not come",
        "A rank that never called the collective, hangs before it, or was stopped. The one to look at is "
        "the rank that "
        "does not complain. TORCH_NCCL_DUMP_ON_TIMEOUT and TORCH_FR_BUFFER_SIZE let NCCL write who waited "
        "for what.",
        "clusterctl logs {run} --rank {rank} --tail 50",
        grade="waited",
    ),
    Symptom(
        "CC-JOB-032",
        r"client socket has (timed out|failed to connect)|TCP client failed to connect",
        "the rank did not reach the store on the first node",
        "If the first node has its own error, that is the cause. Otherwise: a firewall, a wrong training "
        "address, or a "
        "script with an address of its own.",
        "clusterctl logs {run} --node 0 --tail 30",
        grade="waited",
    ),
    Symptom(
        "CC-JOB-033",
        r"\d+/\d+ clients joined|wait timeout after \d+ ?ms, keys|Timeout waiting for key"
        r"|barrier timeout after"
        r"|Socket Timeout",
        "not all ranks came to the store in time",
        "Look at the ranks that do not complain: they had not started, or hang before their process group.",
        "clusterctl logs {run} --tail 3",
        grade="waited",
    ),
    Symptom(
        "CC-JOB-031",
        r"connection refused, remote=|connectFullMesh failed|SO_ERROR: (No route to host"
        r"|Connection timed out)",
        "the rank did not reach another rank on the training network",
        "If another rank has its own error, that is the cause. Otherwise the addresses: remote=[127.0.0.1] "
        "means that a "
        "node's name resolves to itself; else NICs of different nets, or closed ports.",
        "clusterctl check job.yaml",
        grade="peer",
        see="CC-NET-010",
    ),
    Symptom(
        "CC-JOB-037",
        r"ncclSystemError|unhandled system error|ncclInternalError",
        "a system call of NCCL failed, mostly because the network or a peer is gone",
        "If another rank has its own error, that is the cause. Otherwise NCCL's own lines name what failed.",
        _SHOW,
        grade="peer",
    ),
    Symptom(
        "CC-JOB-052",
        r"connection closed by( peer)?|connection reset by peer|broken pipe|connection was likely closed"
        r"|got 0 bytes|sent 0 bytes"
        r"|remote worker crashing|ncclRemoteError|remote process exited|NCCL communicator was aborted"
        r"|watchdog thread terminated|socket closed|recvValueWithTimeout failed"
        r"|Did the remote server shutdown"
        r"|signalexception|DataLoader worker \(pid[^)]*\)+ is killed by signal: Terminated"
        r"|successfully reached monitoredBarrier",
        "another rank went away",
        "No rank said why. Look for one that ended without a word, and at the network between the nodes.",
        "clusterctl logs {run} --tail 5",
        grade="peer",
    ),
)
