"""The lab, and bugs: CC-LAB, CC-BUG."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Text

ENTRIES: Mapping[str, Entry] = {
    "CC-LAB-001": Entry(
        "error",
        Text("a program that the lab needs is missing; the package is named", "lab 缺一个程序"),
        do=Text("Install the package that is named", "装上指出的包"),
    ),
    "CC-LAB-002": Entry(
        "error",
        Text(
            "this machine does not allow the lab's namespaces; the reason and the remedy are named",
            "本机不许建 lab 要的命名空间",
        ),
        do=Text("`lab up --backend inproc`, or what is shown", "`lab up --backend inproc`，或者照提示做"),
    ),
    "CC-LAB-003": Entry(
        "error",
        Text(
            "a number, a name or a way to break that the lab does not know",
            "lab 不认识这个数字、名字或弄坏的方式",
        ),
        do=Text("The ways that there are stand in the message", "报错里列出了可用的"),
    ),
    "CC-LAB-004": Entry(
        "error",
        Text("a lab of this name exists already", "同名的 lab 已经有了"),
        do=Text("`lab down` first, or another `--name`", "先 `lab down`，或者换个 `--name`"),
    ),
    "CC-LAB-005": Entry(
        "error",
        Text("no such lab is running, or several are: `--name` chooses", "没有这个 lab 在跑，或者有好几个"),
        do=Text("`lab status` lists them; `--name` chooses", "`lab status` 会列出来；用 `--name` 选"),
        cases={
            "no-such": Case(Text("no lab called {name} is running"), Text("running: {running}")),
            "none": Case(Text("no lab called {name} is running"), Text("no lab is running: nothing to end")),
        },
    ),
    "CC-LAB-006": Entry(
        "error",
        Text("the lab has no such node", "lab 里没有这个节点"),
        do=Text("`lab status` lists the nodes", "`lab status` 会列出节点"),
    ),
    "CC-LAB-007": Entry(
        "error",
        Text("the lab could not do what it was asked, or did not come up", "lab 起不来，或者做不到"),
        do=Text("The reason is shown; `lab down --all`, then again", "看原因；`lab down --all` 之后再来"),
    ),
    "CC-LAB-008": Entry(
        "error",
        Text("the lab does not answer or does not end", "lab 没有反应，或者结束不了"),
        do=Text("`lab down --all`", "`lab down --all`"),
    ),
    "CC-LAB-009": Entry(
        "error",
        Text("the node is powered off", "节点断电了"),
        do=Text("`lab heal NODE`", "`lab heal NODE`"),
    ),
    "CC-LAB-010": Entry(
        "error",
        Text(
            "a lab without namespaces cannot do that: its nodes have no NICs of their own",
            "没有命名空间的 lab 做不到",
        ),
        do=Text(
            "A lab with namespaces, see [the quickstart](quickstart.md#if-the-lab-does-not-come-up)",
            "要有命名空间的 lab，见[快速上手](quickstart.md#lab-起不来怎么办)",
        ),
    ),
    "CC-BUG-001": Entry(
        "error",
        Text("a bug in clusterctl", "clusterctl 自己的 bug"),
        what=Text("Exit code 70; the message names a file with the details. Please report it"),
        do=Text(
            "The message names a file with the details: [please report it](../../CONTRIBUTING.md#reporting-a-bug)",
            "报错里写了详情文件：[请报告](../../CONTRIBUTING.md#reporting-a-bug)",
        ),
        cases={
            "": Case(Text("a bug in clusterctl: {message}"), Text("please report it with the file {file}")),
        },
    ),
}
