"""What a script's syntax tree shows, and the launch that follows from it."""

from __future__ import annotations

import warnings

import pytest

from clusterctl.plans.launch.script import (
    Line,
    ScriptLaunch,
    ScriptUse,
    merge_args,
    output_args,
    plan_script,
)

URL = "tcp://${master_addr}:${master_port}"

BY_HAND = """
import argparse, torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--tcp", default="tcp://10.1.1.1:23456")
parser.add_argument("--rank", type=int, default=0)
parser.add_argument("--epochs", type=int)
args = parser.parse_args()
dist.init_process_group("gloo", init_method=args.tcp, rank=args.rank, world_size=2)
"""

# As pytorch/examples does it: one process a node, which starts one worker for each GPU if a flag is given.
FLAGGED = """
import torch, torch.distributed as dist, torch.multiprocessing as mp
parser.add_argument("--world-size", default=-1, type=int)
parser.add_argument("--rank", default=-1, type=int)
parser.add_argument("--dist-url", default="tcp://224.66.41.62:23456")
parser.add_argument("--spread", action="store_true")
if args.spread:
    args.world_size = torch.cuda.device_count() * args.world_size
    mp.spawn(work, nprocs=torch.cuda.device_count(), args=(args,))
else:
    work(0, args)
def work(gpu, args):
    args.rank = args.rank * 8 + gpu
    dist.init_process_group("nccl", init_method=args.dist_url, world_size=args.world_size, rank=args.rank)
"""


def use_of(*sources: str | bytes) -> ScriptUse:
    """Read the files of a script."""
    use = ScriptUse()
    for source in sources:
        use.add_file("train.py", source.encode() if isinstance(source, str) else source)
    return use


@pytest.mark.parametrize(
    ("text", "launch"),
    [
        ("print(1)", ScriptLaunch()),
        ("p.add_argument('--local_rank')", ScriptLaunch(args=("--local_rank=${local_rank}",))),
        ("p.add_argument('--local-rank')", ScriptLaunch(args=("--local-rank=${local_rank}",))),
        ("p.add_argument('--local_rank'); os.environ['LOCAL_RANK']", ScriptLaunch()),
        ("import torch.multiprocessing as mp; mp.spawn(f, nprocs=2)", ScriptLaunch("python", (), 2)),
        ("import torch; torch.multiprocessing.spawn(f, nprocs=n)", ScriptLaunch("python")),
        ("from torch import multiprocessing; multiprocessing.spawn(f)", ScriptLaunch("python")),
        ("import multiprocessing as mp; mp.spawn(f)", ScriptLaunch()),
        (BY_HAND, ScriptLaunch("python", ("--tcp", URL, "--rank", "${node_rank}"), 1)),
        (
            FLAGGED,
            ScriptLaunch(
                "python",
                ("--world-size", "${nnodes}", "--rank", "${node_rank}", "--dist-url", URL, "--spread"),
            ),
        ),
    ],
)
def test_the_launch_follows_from_what_the_script_parses(text: str, launch: ScriptLaunch) -> None:
    """Launcher, arguments, and the number of processes where the script has one."""
    assert plan_script(use_of(text)) == launch


def test_a_rank_that_the_code_sets_itself_is_no_argument() -> None:
    """What torchrun has put into the environment decides then."""
    assert plan_script(use_of(BY_HAND + "args.rank = int(os.environ['RANK'])")).launcher == "torchrun"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("import torch._six", 1),
        ("from torch._six import inf", 1),
        ("from torch import _six", 1),
        ("import torch\nx = torch._six.inf", 2),
        ("import torch as t\n\ny = t._six.string_classes", 3),
        ("import six\nsix.string_types", 0),
    ],
)
def test_torch_six_in_every_spelling(text: str, line: int) -> None:
    """With an import, and without one."""
    assert use_of(text).six == ([Line("train.py", line)] if line else [])


@pytest.mark.parametrize(
    "source",
    [
        b"print 'python 2'",
        b"\x00\x01\xff",
        "print('\u4f60\u597d')".encode("gbk"),
        b"# coding: no-such-codec\n",
        b"(" * 100_000,
        b"x = " + b"-" * 100_000 + b"1",
        b"x = 1" + b"+1" * 50_000,
        b"",
    ],
)
def test_what_cannot_be_parsed_shows_nothing(source: bytes) -> None:
    """No file of a user ends the command, however it is damaged."""
    assert use_of(source) == ScriptUse()


def test_a_declared_encoding_counts_and_warnings_of_the_script_are_not_shown() -> None:
    """Old scripts are not in UTF-8, and have "\\d" in their strings."""
    text = "# -*- coding: gbk -*-\nx = '\u4f60\\d'\np.add_argument('--local_rank')\n"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        use = use_of(text.encode("gbk"))
    assert use.local_rank_option is not None


def test_the_modules_beside_the_script_are_found() -> None:
    """Absolute from where Python looks first, relative from the file's own folder."""
    text = "import data, pkg.model as m\nfrom lib import nets\nfrom . import near\nfrom ..up import far\n"
    imports = ScriptUse().add_file("code/sub/train.py", text.encode(), "code")
    assert {
        "code/data.py",
        "code/pkg/model.py",
        "code/lib.py",
        "code/lib/nets.py",
        "code/sub/near.py",
        "code/up.py",
        "code/up/far.py",
    } <= set(imports)


def test_of_two_files_both_count() -> None:
    """The parser may stand in one, the process group in the other."""
    first, second = BY_HAND.split("args = ")
    both = use_of(first, "import torch.distributed as dist\nargs = " + second)
    assert plan_script(both) == plan_script(use_of(BY_HAND))


@pytest.mark.parametrize(
    ("args", "wanted", "merged"),
    [
        ((), ("--rank", "${node_rank}"), ("--rank", "${node_rank}")),
        (("--epochs", "3"), ("--rank", "1"), ("--epochs", "3", "--rank", "1")),
        (("--rank", "0", "--epochs", "3"), ("--rank", "1"), ("--rank", "1", "--epochs", "3")),
        (("--rank=0",), ("--rank", "1"), ("--rank=1",)),
        (("--local_rank=0", "x"), ("--local_rank=${local_rank}",), ("--local_rank=${local_rank}", "x")),
    ],
)
def test_the_arguments_of_the_job_stay(
    args: tuple[str, ...], wanted: tuple[str, ...], merged: object
) -> None:
    """A value that is there already is replaced, not given twice."""
    assert merge_args(args, wanted) == merged


@pytest.mark.parametrize(
    ("source", "args"),
    [
        ("p.add_argument('-o', '--output-dir', default='out')", ("--output-dir", "${output_dir}")),
        ("p.add_argument('--save', default='runs/model.pt')", ("--save", "${output_dir}/model.pt")),
        ("p.add_argument('--log-dir')\np.add_argument('--ckpt_dir')", ("--ckpt_dir", "${output_dir}")),
        ("p.add_argument('--save', action='store_true')", ()),
        ("p.add_argument('--lr')", ()),
        (
            "import click\n@click.option('--out', '-o', default='.')\ndef main(out): ...",
            ("--out", "${output_dir}"),
        ),
        ("import click\n@click.option('--save/--no-save')\ndef main(save): ...", ()),
        ("import click\n@click.option('--save', is_flag=True)\ndef main(save): ...", ()),
        (
            "from transformers import HfArgumentParser, TrainingArguments\nHfArgumentParser((TrainingArguments,))",
            ("--output_dir", "${output_dir}"),
        ),
        ("from trl import TrlParser\nTrlParser((A, B))", ("--output_dir", "${output_dir}")),
    ],
)
def test_the_option_for_results(source: str, args: tuple[str, ...]) -> None:
    """Of argparse, click and Hugging Face; a file keeps its name, and a flag is no folder."""
    assert output_args(use_of(source)) == args
