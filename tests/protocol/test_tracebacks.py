"""Tracebacks are found in the lines of a rank's stderr."""

from __future__ import annotations

import pytest

from clusterctl.protocol.tracebacks import StderrParser, find_tracebacks, shorten_traceback

TRACEBACK = "Traceback (most recent call last)"


@pytest.mark.parametrize("between", [0, 2, 5])
def test_each_traceback_keeps_its_first_line(between: int) -> None:
    """Also where one follows the other at once: the lines before the second never reach back over the first."""
    lines = ["step 1", f"{TRACEBACK}:", *["  frame"] * between, f"{TRACEBACK}:", "ValueError: x"]
    blocks = [lines[block.begin : block.end] for block in find_tracebacks(lines, 4)]

    assert [sum(TRACEBACK in line for line in block) for block in blocks] == [1, 1]
    assert [line for block in blocks for line in block] == lines


def test_what_a_launcher_raises_does_not_replace_the_exception_of_its_rank() -> None:
    """Where both write into one log, as below accelerate; alone it counts, so that there is a cause at all."""
    launcher = [
        f"{TRACEBACK}:",
        '  File "/env/bin/accelerate", line 8, in <module>',
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    ]
    rank = [
        f"{TRACEBACK}:",
        '  File "/run/code/train.py", line 7, in main',
        "    step()",
        "ValueError: bad batch",
    ]
    found = []
    for lines in ([*rank, *launcher], launcher):
        parser = StderrParser()
        for line in lines:
            parser.feed(line, 1.0)
        found.append((parser.exception, parser.own_frame))

    assert found == [
        ("ValueError: bad batch", ("/run/code/train.py", "7", "step()")),
        (launcher[-1].strip(), ("/env/bin/accelerate", "8")),
    ]


@pytest.mark.parametrize("through_record", [False, True])
def test_a_worker_of_ray_train_is_named_with_its_rank_and_address(*, through_record: bool) -> None:
    """Both are in lines that Ray passes on, those of two workers mixed; the exception is in the program's own."""
    frame = '  File "/run/code/train.py", line 46, in work'
    there, other = (
        "(RayTrainWorker pid=412, ip=10.77.0.3) ",
        "\x1b[36m(RayTrainWorker pid=9, ip=10.77.0.4)\x1b[0m ",
    )
    lines = [
        *(f"{there}Error in training function:", f"{there}{TRACEBACK}:", f"{other}{TRACEBACK}:"),
        *([f"{there}{frame}", f"{there}    deeper()"] * 12),
        *(f"{other}ValueError: other", f"{there}ValueError: broken", f"{there}ValueError: never"),
        *(f"{TRACEBACK}:", '  File "/run/code/train.py", line 80, in main', "    trainer.fit()"),
        "ray.train.v2.api.exceptions.WorkerGroupError: Training failed due to worker errors:",
        *("[Rank 3 Error Snippet]:", f"{TRACEBACK}:", frame, "    loss.backward()", "ValueError: broken"),
    ]
    if through_record:
        blocks = find_tracebacks(lines, 4)
        lines = [line for block in blocks for line in shorten_traceback(lines[block.begin : block.end], 16)]
    parser = StderrParser()
    for line in lines:
        parser.feed(line, 1.0)

    assert parser.exception == "ValueError: broken"
    assert parser.own_frame[:2] == ("/run/code/train.py", "46")
    assert parser.ray_task == ("RayTrainWorker (rank 3)", "10.77.0.3")


def test_a_rank_is_not_named_where_several_workers_of_ray_train_have_raised_the_like() -> None:
    """Ray Train shows these once, after another exception of one rank alone."""
    worker, frame = "(RayTrainWorker pid=412, ip=10.77.0.3) ", '  File "/run/code/train.py", line 46, in work'
    lines = [
        *(f"{worker}{TRACEBACK}:", f"{worker}{frame}", f"{worker}ValueError: broken"),
        *("[Rank 0 Error Snippet]:", f"{TRACEBACK}:", frame, "KeyError: 'x'"),
        *("[Rank 1,3 Error Snippet]:", f"{TRACEBACK}:", frame, "ValueError: broken"),
    ]
    parser = StderrParser()
    for line in lines:
        parser.feed(line, 1.0)

    assert parser.exception == "ValueError: broken"
    assert parser.ray_task == ("RayTrainWorker", "10.77.0.3")
