"""The table of codes and its families; it is loaded when the first code is looked up, since most commands need none."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from clusterctl.codes.entry import NOTHING, Case, Entry, Text
from clusterctl.translation import Translated, fill, fill_chinese, fill_english, language

REPORTED = "reported"  # the case of an error whose message comes from a node, which may send any code
_AS_REPORTED = Case(Text("{message}", "{message}"))
_UNKNOWN = Entry("error", NOTHING)


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
    "CODE": Text("The job's code", "作业的代码"),
    "SPEC": Text("Inventory and job files", "inventory 和作业文件"),
    "USE": Text("The command line", "命令行"),
    "KEYS": Text("Installing keys", "安装密钥"),
    "SYNC": Text("Sending the code", "发送代码"),
    "SETUP": Text("Creating environments", "创建环境"),
    "RUN": Text("Starting and following a run", "启动和持续显示任务"),
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


@cache
def entries() -> Mapping[str, Entry]:
    """Give every entry by its code."""
    from clusterctl.codes import (
        gpu,
        hang,
        lab,
        network,
        python,
        ranks,
        runs,
        script,
        slurm,
        specs,
        ssh,
        system,
        usage,
    )

    families = (ssh, python, gpu, network, system, script, specs, usage, runs, ranks, hang, slurm, lab)
    return {code: entry for family in families for code, entry in family.ENTRIES.items()}


def find_entry(code: str) -> Entry:
    """Give the entry of a code; one without texts for a code that this version does not know."""
    return entries().get(code, _UNKNOWN)


def word(code: str, case: str, facts: Mapping[str, object]) -> tuple[str, str]:
    """Give message and fix of one case of a code, in the language in use."""
    cases = find_entry(code).cases
    message, fix = cases.get(case, _AS_REPORTED) if case == REPORTED else cases[case]
    return _fill(message, facts), _fill(fix, facts)


def _fill(text: Text, facts: Mapping[str, object]) -> str:
    if language() == "en":
        return fill(text.en, facts)
    return Translated(fill_chinese(text.here, facts), fill_english(text.en, facts))


def family_of(code: str) -> str:
    """Give the middle of a code."""
    return code.split("-")[1]
