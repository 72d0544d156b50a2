"""The table of codes, put together of its families; read it by `lookup.py`."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes import (
    files,
    gpu,
    hang,
    lab,
    network,
    python,
    ranks,
    runs,
    slurm,
    ssh,
    system,
    usage,
)
from clusterctl.codes.entry import Entry, Text

# in the order in which they are listed
FAMILIES: Mapping[str, Text] = {
    "SSH": Text("Connecting to a node", "连接节点"),
    "PY": Text("Python", "Python"),
    "TORCH": Text("torch", "torch"),
    "GPU": Text("GPUs", "GPU"),
    "NET": Text("The training network", "训练网络"),
    "DEEP": Text("Collectives", "集合通信"),
    "DISK": Text("Disks", "磁盘"),
    "SYS": Text("The system", "系统"),
    "TIME": Text("Clocks", "时钟"),
    "SPEC": Text("Inventory and job files", "inventory 和作业文件"),
    "USE": Text("The command line", "命令行"),
    "KEYS": Text("Installing keys", "安装密钥"),
    "SYNC": Text("Sending the code", "发送代码"),
    "SETUP": Text("Creating environments", "创建环境"),
    "RUN": Text("Starting and following a run", "启动和跟踪任务"),
    "JOB": Text("How a rank ended", "rank 结束的原因"),
    "HANG": Text("A run that hangs", "卡住的任务"),
    "END": Text("After a run has ended", "任务结束之后"),
    "PULL": Text("Downloading results", "下载结果"),
    "COPY": Text("Copying files", "复制文件"),
    "CLEAN": Text("Cleaning up", "清理"),
    "SLURM": Text("Slurm clusters", "Slurm 集群"),
    "LAB": Text("The lab", "lab"),
    "BUG": Text("Bugs", "bug"),
}

TABLE: Mapping[str, Entry] = {
    code: entry
    for module in (ssh, python, gpu, network, system, files, usage, runs, ranks, hang, slurm, lab)
    for code, entry in module.ENTRIES.items()
}
