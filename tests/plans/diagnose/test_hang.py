"""The judgement of a run that makes no progress, by recorded values: what is named, and what is not accused."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clusterctl.client.run_evidence import save_diagnosis
from clusterctl.console.text import sanitize
from clusterctl.plans.diagnose import waits as waits_module
from clusterctl.plans.diagnose.evidence import (
    Entry,
    Frame,
    GroupRecord,
    RankEvidence,
    Watcher,
    compare_stacks,
    main_frames,
    parse_evidence,
)
from clusterctl.plans.diagnose.hang import fold_numbers, judge
from clusterctl.plans.diagnose.waits import gaps
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.translation import use_language

LOADING = (Frame("train.py", 88, "load_batch"), Frame("train.py", 120, "<module>"))
WAITING = (
    Frame("/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 3252, "all_reduce"),
    Frame("train.py", 91, "train_step"),
    Frame("train.py", 121, "<module>"),
)


def entry(
    number: int, age: float, operation: str = "all_reduce", *, done: bool = False, sizes: str = "[[1000]]"
) -> Entry:
    """Make an entry of the flight recorder."""
    return Entry(number, None, operation, sizes, "Float", done, age)


def group(*entries: Entry, about: str = "default_pg", members: Iterable[int] = ()) -> GroupRecord:
    """Make what a rank has in one process group."""
    return GroupRecord("0" if about == "default_pg" else about, about, tuple(members), entries)


def rank(number: int, *groups: GroupRecord, frames: tuple[Frame, ...] = WAITING) -> RankEvidence:
    """Make a rank that answers; two ranks a node."""
    return RankEvidence(
        number,
        f"gpu{number // 2 + 1:02}",
        pid=100 + number,
        process="S",
        cpu=0.0,
        silent=60.0,
        stack="Thread",
        frames=frames,
        groups=groups,
    )


def waits(
    number: int, age: float = 40.0, operation: str = "all_reduce", sizes: str = "[[1000]]"
) -> RankEvidence:
    """Make a rank that waits in the collective 7 after an ordinary 6."""
    return rank(number, group(entry(6, age + 0.5, done=True), entry(7, age, operation, sizes=sizes)))


def behind(number: int, frames: tuple[Frame, ...] = LOADING) -> RankEvidence:
    """Make a rank that has left the collective 6 and not entered 7."""
    return rank(number, group(entry(6, 40.5, done=True)), frames=frames)


def count_calls(function: Callable[..., Any], calls: list[object]) -> Callable[..., Any]:
    """Return a function that notes each call."""

    def counted(*arguments: Any) -> Any:
        calls.append(arguments[0])
        return function(*arguments)

    return counted


def seven_of_eight(odd: RankEvidence) -> list[RankEvidence]:
    """Give eight ranks of which seven wait."""
    return [odd if number == odd.rank else waits(number) for number in range(8)]


def test_the_rank_that_has_not_entered_is_named_with_its_line() -> None:
    """One sentence: who, which collective, where; who waits, where, and for how long."""
    judgement = judge(seven_of_eight(behind(3)))
    assert judgement.code == "CC-HANG-004"
    assert judgement.suspects == (3,) and judgement.waiting == (0, 1, 2, 4, 5, 6, 7)
    assert judgement.sentence == (
        "rank 3 (gpu02) has not entered all_reduce #7 of group default_pg; it is at train.py:88 in load_batch(); "
        "7 ranks have waited for it at train.py:91 in train_step() for 40 s"
    )


def test_the_sentence_is_there_in_chinese() -> None:
    """The same facts in the user's language."""
    use_language("zh")
    try:
        sentence = judge(seven_of_eight(behind(3))).sentence
    finally:
        use_language("en")
    assert "没有进入" in sentence and "train.py:88" in sentence and "waited" not in sentence


STOPPED = replace(behind(3), process="T", problem="stopped", frames=(), groups=(), stack="")
SLEEPS_IN_KERNEL = replace(behind(3), process="D", waits_in="nfs_wait_bit_killable")
TRACEBACK = (
    'Traceback (most recent call last):\n  File "t.py", line 3\n[rank3]: torch.OutOfMemoryError: no memory\n'
)
FAILED = replace(
    behind(3, (Frame("/usr/lib/python3.11/threading.py", 1590, "_shutdown"),)),
    stderr=TRACEBACK,
    uncaught=True,
)
LOCKED = replace(behind(3), groups=(), records_problem="no answer")
EXITED = RankEvidence(3, "gpu02", pid=103, problem="ended", exit=0)


@pytest.mark.parametrize(
    ("odd", "code", "words"),
    [
        (STOPPED, "CC-HANG-001", "is stopped by a signal"),
        (replace(STOPPED, process="t"), "CC-HANG-001", "by a debugger"),
        (replace(STOPPED, traced=True), "CC-HANG-001", "by a debugger"),
        (SLEEPS_IN_KERNEL, "CC-HANG-002", "nfs_wait_bit_killable"),
        (FAILED, "CC-HANG-003", "failed with torch.OutOfMemoryError: no memory"),
        (LOCKED, "CC-HANG-004", "C code holds the GIL at train.py:88 in load_batch()"),
        (EXITED, "CC-HANG-004", "has exited and will not enter all_reduce #7"),
        (
            waits(3, operation="broadcast"),
            "CC-HANG-005",
            "rank 3 (gpu02): broadcast Float [[1000]] at train.py:91",
        ),
        (waits(3, sizes="[[900]]"), "CC-HANG-005", "all_reduce Float [[900]]"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_cause_is_told_from_the_others(odd: RankEvidence, code: str, words: str) -> None:
    """Of eight ranks the third is the cause, each time another one; seven wait."""
    judgement = judge(seven_of_eight(odd))
    assert (judgement.code, judgement.suspects) == (code, (3,))
    assert words in judgement.sentence and judgement.hangs


def test_a_traceback_that_was_survived_is_no_failure() -> None:
    """The script goes on: its frame is in the stack. So it is what the others wait for, and nothing more."""
    assert judge(seven_of_eight(replace(behind(3), stderr=TRACEBACK))).code == "CC-HANG-004"


def test_a_disk_that_is_read_while_all_make_progress_is_no_hang() -> None:
    """State D is usual for a moment."""
    ranks = [rank(number, group(entry(6, 0.4, done=True), entry(7, 0.2))) for number in range(4)]
    assert judge([*ranks[:3], replace(ranks[3], process="D")]).code == "CC-HANG-009"


def test_all_entered_and_none_completes_is_the_network() -> None:
    """Nobody is accused; the next step is a test."""
    judgement = judge([waits(number) for number in range(4)])
    assert (judgement.code, judgement.suspects) == ("CC-HANG-006", ())
    assert "all ranks (ranks 0-3)" in judgement.sentence and "check --deep" in judgement.fix


def test_a_rank_that_left_the_collective_early_is_not_missing() -> None:
    """The root of a broadcast goes on; who has not entered is named."""
    root = rank(0, group(entry(7, 40.0, "broadcast", done=True), entry(8, 39.0)))
    others = [waits(number, operation="broadcast") for number in (1, 2)]
    assert judge([root, *others, behind(3)]).suspects == (3,)


def test_a_rank_that_waits_in_another_group_is_excused() -> None:
    """Rank 0 is missing in the barrier because it waits for rank 1 in a group of both."""
    pair = group(entry(1, 50.0), about="dp", members=(0, 1))
    ranks = [
        rank(0, group(entry(6, 60.0, done=True)), pair),
        rank(1, group(entry(6, 60.0, done=True)), frames=LOADING),
        *(rank(number, group(entry(6, 60.0, done=True), entry(7, 45.0, "barrier"))) for number in (2, 3)),
    ]
    judgement = judge(ranks)
    assert judgement.suspects == (1,) and "all_reduce #1 of group dp" in judgement.sentence


def test_groups_in_different_order_wait_for_each_other() -> None:
    """Each of two ranks has entered what the other has not; the third waits for both of them."""
    first, second = (group(entry(4, 30.0), about=name, members=(0, 1)) for name in ("tp", "dp"))
    all_ranks = [group(entry(6, 50.0, done=True)), group(entry(6, 50.0, done=True), entry(7, 40.0))]
    judgement = judge([rank(0, all_ranks[0], first), rank(1, all_ranks[0], second), rank(2, all_ranks[1])])
    assert (judgement.code, judgement.suspects) == ("CC-HANG-005", (0, 1))
    assert judgement.sentence == (
        "rank 0 in all_reduce #4 of group tp (ranks 0-1) at train.py:91 in train_step(); "
        "rank 1 in all_reduce #4 of group dp (ranks 0-1) at train.py:91 in train_step(): "
        "they wait for each other in a circle"
    )


def new(about: str, *members: int) -> GroupRecord:
    """Make a group in which a rank waits in the first collective."""
    return group(entry(1, 30.0), about=about, members=members)


def test_a_circle_names_the_group_of_each_rank() -> None:
    """Of a mesh two groups have one name; a group that is used for the first time has entries of one rank only."""
    ranks = [
        rank(0, new("tp", 0, 1)),
        rank(1, new("dp", 1, 3)),
        rank(2, new("dp", 0, 2)),
        rank(3, new("tp", 2, 3)),
    ]
    judgement = judge(ranks)
    assert (judgement.code, judgement.suspects) == ("CC-HANG-005", (0, 1, 2, 3))
    for part in (
        "rank 0 in all_reduce #1 of group tp (ranks 0-1)",
        "rank 3 in all_reduce #1 of group tp (ranks 2-3)",
    ):
        assert part in judgement.sentence


def test_a_rank_that_never_used_a_group_is_missing_in_it() -> None:
    """Its ranks are known by those who wait; where they are not, no rank is accused and nothing is said of all."""
    others = [rank(0, new("tp", 0, 1)), rank(1, new("tp", 0, 1))]
    judgement = judge([*others, rank(2, new("tp", 2, 3)), rank(3, frames=LOADING)])
    assert (judgement.code, judgement.suspects) == ("CC-HANG-004", (3,))
    unknown = judge([rank(2, new("tp")), rank(3, frames=LOADING)])
    assert (unknown.code, unknown.suspects) == ("CC-HANG-004", ())
    assert "torch does not report for which ranks; not in it: rank 3 at train.py:88" in unknown.sentence


RECEIVING = (
    Frame("/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 2799, "recv"),
    Frame("train.py", 50, "next_stage"),
)


def test_of_a_receive_the_rank_that_does_not_send_is_named() -> None:
    """Gloo records no recv: it is known by the stack, and from whom by what the rank reports."""
    receives = replace(behind(1, RECEIVING), peer=0)
    judgement = judge([behind(0), receives, waits(2)])
    assert (judgement.code, judgement.suspects) == ("CC-HANG-004", (0,))
    both = judge([replace(behind(0, RECEIVING), peer=1), receives, waits(2)])
    assert (both.code, both.case, both.suspects) == ("CC-HANG-005", "pairs", (0, 1))
    assert "rank 0 in recv from rank 1 at train.py:50 in next_stage()" in both.sentence


def test_several_ranks_are_several() -> None:
    """In every form of the sentence."""
    two = judge([waits(0), behind(1), behind(2)]).sentence
    assert two.startswith(
        "ranks 1-2 (gpu[01-02]) have not entered all_reduce #7 of group default_pg; they are at "
    )
    assert two.endswith("1 rank has waited for them at train.py:91 in train_step() for 40 s")


def test_a_rank_that_computes_may_evaluate() -> None:
    """The others wait for it all the same."""
    busy = judge(seven_of_eight(replace(behind(3), cpu=0.97)))
    assert (busy.code, busy.suspects) == ("CC-HANG-004", (3,))
    assert "and uses a processor: it may evaluate, load or save" in busy.sentence


THREADS = """Thread (most recent call first):
  File "train.py", line 30 in upload
  File "/usr/lib/python3.11/threading.py", line 982 in run

Current thread (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 1590 in _shutdown
"""


def test_a_rank_that_waits_for_a_thread_at_its_end() -> None:
    """Its name, and where it is; also while others wait for this rank."""
    left = replace(behind(3), stack=THREADS, frames=main_frames(THREADS), left=(("thread", "uploader"),))
    judgement = judge(seven_of_eight(left))
    assert (judgement.code, judgement.case, judgement.suspects) == ("CC-HANG-003", "thread", (3,))
    assert (
        "waits for the thread uploader (at train.py:30 in upload()), which is not a daemon"
        in judgement.sentence
    )


def test_two_looks_clear_what_moves() -> None:
    """One at another line than most is accused by its stack alone: not if it is elsewhere two seconds later."""
    first = [replace(rank(number, frames=LOADING), stack="a") for number in range(4)]
    first[3] = replace(first[3], frames=(Frame("train.py", 99, "other"),))
    assert (judge(first).code, judge(first).is_thin) == ("CC-HANG-007", True)
    assert judge(compare_stacks(first, first)).code == "CC-HANG-007"
    then = [*first[:3], replace(first[3], frames=(Frame("train.py", 100, "other"),))]
    cleared = judge(compare_stacks(then, first))
    assert (cleared.code, cleared.suspects) == ("CC-HANG-010", ())
    assert cleared.sentence.endswith("changed within 2 s: rank 3")


def test_a_rank_without_a_full_answer_is_not_accused_of_what_others_show() -> None:
    """Its stack shows that it is in a collective, which its records would name."""
    starved = replace(behind(2, WAITING), groups=(), records_problem="no answer")
    judgement = judge([waits(0), behind(1), starved])
    assert (judgement.code, judgement.suspects) == ("CC-HANG-004", (1,))
    quiet = judge([replace(starved, rank=number) for number in range(2)] + [behind(2)])
    assert quiet.suspects in ((), (2,)) and not quiet.sentence.startswith("all ranks")


def test_ranks_that_name_different_sources() -> None:
    """The records have the operation only: the argument is known while a rank is in it."""
    ranks = [replace(waits(number, operation="broadcast"), peer=number % 2) for number in range(3)]
    judgement = judge(ranks)
    assert (judgement.code, judgement.case) == ("CC-HANG-005", "peer")
    assert "rank 0 by ranks 0,2 at train.py:91" in judgement.sentence
    same = judge([replace(one, peer=0) for one in ranks])
    assert (same.code, same.case) == ("CC-HANG-006", "")


def test_sizes_may_differ_where_the_operation_allows_it() -> None:
    """Each rank has its own size in an all_to_all: that is no mismatch."""
    ranks = [waits(number, operation="all_to_all", sizes=f"[[{number}]]") for number in range(3)]
    assert judge(ranks).code == "CC-HANG-006"


def test_the_ranks_of_a_node_that_does_not_answer_are_named() -> None:
    """The others wait, and of eight ranks six have answered."""
    ranks = [waits(number) for number in range(8) if number // 2 != 2]
    judgement = judge(ranks, ["gpu03"], world=8)
    assert judgement.suspects == (4, 5) and "no answer about ranks 4-5 (gpu03)" in judgement.sentence


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ((entry(6, 2.0, done=True), entry(7, 1.0)), "CC-HANG-009"),
        ((entry(5, 90.0, done=True), entry(6, 60.0, done=True), entry(7, 31.0)), "CC-HANG-009"),
        ((entry(5, 360.0, done=True), entry(6, 330.0, done=True), entry(7, 300.0)), "CC-HANG-006"),
    ],
    ids=["young", "slow steps", "much longer than a usual step"],
)
def test_a_wait_counts_once_it_is_unusual(entries: tuple[Entry, ...], code: str) -> None:
    """A run with steps of thirty seconds is not hung after thirty."""
    assert judge([rank(number, group(*entries)) for number in range(4)]).code == code


def test_without_records_the_odd_line_is_named() -> None:
    """An older torch, or a lock before the first collective; a busy one loads or computes."""
    ranks = [rank(number, frames=(Frame("train.py", 91, "train_step"),)) for number in range(3)]
    assert judge([*ranks, replace(rank(3, frames=LOADING), process="R")]).code == "CC-HANG-010"
    judgement = judge([*ranks, rank(3, frames=LOADING)])
    assert (judgement.code, judgement.suspects) == ("CC-HANG-007", (3,))
    assert "rank 3 (gpu02) at train.py:88 in load_batch(), while ranks 0-2 are at" in judgement.sentence


def test_what_cannot_be_judged_is_said() -> None:
    """All compute; nothing was prepared; a node is silent; no rank at all."""
    computing = [replace(rank(number, frames=LOADING), cpu=1.0) for number in range(2)]
    assert "2 of 2 use a processor" in judge(computing).sentence
    idle = [replace(one, cpu=0.0) for one in computing]
    assert judge(idle).sentence == (
        "no rank waits in a collective (none has been recorded yet) or uses a processor: "
        "ranks 0-1 at train.py:88 in load_batch()"
    )
    unprepared = [RankEvidence(0, "gpu01", problem="not prepared", process="S")]
    assert "no stacks and no records: not prepared" in judge(unprepared).sentence
    assert judge([], ["gpu02"]).code == "CC-HANG-008"
    assert judge([]).code == "CC-HANG-010" and not judge([]).hangs


def test_of_coalesced_collectives_the_last_entry_counts() -> None:
    """The single ones stay scheduled for ever; when the last one is over, nothing waits."""
    single = [entry(7, 40.0, "all_gather") for _ in range(3)]
    over, pending = entry(7, 39.9, "coalesced", done=True), entry(7, 39.9, "coalesced")
    before = entry(6, 41.0, done=True)
    done, waits_there = (group(before, *single, last) for last in (over, pending))
    assert judge([rank(number, done) for number in range(3)]).code == "CC-HANG-010"
    judgement = judge([rank(0, waits_there), rank(1, waits_there), behind(2)])
    assert (judgement.code, judgement.suspects, judgement.waiting) == ("CC-HANG-004", (2,), (0, 1))
    assert "coalesced #7" in judgement.sentence
    assert [round(gap, 1) for gap in gaps(done)] == [1.1]


def test_names_that_no_program_has_are_dropped() -> None:
    """A pattern runs over bounded texts only; of a path the last prefix of a library is cut off."""
    header = "Thread (most recent call first):\n"
    assert main_frames(f'{header}  File "{16_000 * "/"}", line 1 in f\n') == ()
    assert main_frames(f'{header}  File "{1001 * "/"}", line 1 in f\n') == ()
    assert main_frames(f'{header}  File "a.py", line 1 in {201 * "f"}\n') == ()
    assert len(main_frames(f'{header}  File "{1000 * "/"}", line 1 in {200 * "f"}\n')) == 1
    nested = Frame("/a/lib/python3.11/x/site-packages/torch/y.py", 5, "<module>")
    assert str(nested) == "torch/y.py:5"


def test_saved_stacks_are_clean_and_of_one_node_each(tmp_path: Path) -> None:
    """What a rank controls does not reach a terminal; two nodes that claim one rank have a file each."""
    stack = "Thread\x1b[2J (x):\r\n\x1b]0;title\x07  File\n"
    ranks = [replace(rank(1), node=node, stack=stack + node) for node in ("gpu01", "gpu02")]
    files = save_diagnosis(tmp_path, "{}", ranks, sanitize)
    assert [path.name for path in files[1:]] == ["rank-1.gpu01.stacks.txt", "rank-1.gpu02.stacks.txt"]
    assert [path.read_text() for path in files[1:]] == [
        f"Thread (x):\n  File\n{node}\n" for node in ("gpu01", "gpu02")
    ]


def test_sends_and_receives_are_no_collectives() -> None:
    """Their numbers are counted for themselves; a pending one accuses no rank where its peer is not known."""
    pair = Entry(7, 3, "recv", "[[10]]", "Float", False, 40.0)
    receives = rank(0, group(entry(6, 41.0, done=True), pair))
    judgement = judge([receives, behind(1), behind(2)])
    assert (judgement.code, judgement.case, judgement.suspects) == ("CC-HANG-004", "unknown", ())
    inside = (replace(WAITING[0], function="recv"), *WAITING[1:])
    judgement = judge([replace(receives, peer=2, frames=inside), behind(1), behind(2)])
    assert (judgement.code, judgement.suspects) == ("CC-HANG-004", (2,))
    assert "has not entered the send for recv of rank 0" in judgement.sentence


def inside(number: int, function: str, **facts: object) -> RankEvidence:
    """Make a rank in a call that torch does not record, unmoved between two looks."""
    frames = (replace(WAITING[0], function=function), *WAITING[1:])
    return replace(rank(number, frames=frames), moved=False, **facts)  # type: ignore[arg-type]  # by name


def elsewhere(number: int, **facts: object) -> RankEvidence:
    """Make a rank in the job's own code, unmoved between two looks."""
    return replace(rank(number, frames=LOADING), moved=False, **facts)  # type: ignore[arg-type]  # by name


def test_a_call_of_a_part_accuses_only_its_ranks() -> None:
    """Of a group that torch does not record the frame has the ranks; where it has none, no rank is accused."""
    ranks = [inside(0, "barrier", call_ranks=(0, 1)), *map(elsewhere, (1, 2, 3))]
    assert judge(ranks).suspects == (1,)
    assert judge([inside(0, "barrier"), *map(elsewhere, (1, 2, 3))]).suspects != (1, 2, 3)
    assert judge([inside(0, "init_process_group", call_of_all=True), *ranks[1:]]).suspects == (1, 2, 3)


def test_a_short_wait_beside_a_long_one_accuses_no_rank() -> None:
    """Ranks 0 and 1 have hung for long in a group of theirs; rank 3 comes 10 ms after rank 2."""
    hung = [rank(number, group(entry(7, 60.0), about="tp0", members=(0, 1))) for number in (0, 1)]
    late = [
        rank(2, group(entry(6, 1.0, done=True), entry(7, 0.01), about="tp1", members=(2, 3))),
        rank(3, group(entry(6, 1.0, done=True), about="tp1", members=(2, 3)), frames=LOADING),
    ]
    judgement = judge([*hung, *late])
    assert (judgement.code, judgement.suspects) == ("CC-HANG-006", ())


def test_a_rank_that_waits_for_its_disk_is_looked_at_twice() -> None:
    """In a wait of milliseconds it is not accused at all."""
    reads = replace(behind(3), process="D", waits_in="folio_wait_bit")
    short = [replace(waits(number, age=0.02)) for number in range(3)]
    assert judge([*short, reads]).code != "CC-HANG-002"
    long = judge([waits(number) for number in range(3)] + [reads])
    assert (long.code, long.is_thin) == ("CC-HANG-002", True)


def test_the_peer_of_another_call_is_not_that_of_a_send() -> None:
    """Rank 1 has a send under way, and stands in a broadcast from rank 0: who must receive is not known."""
    pair = Entry(7, 3, "send", "[[10]]", "Float", False, 60.0)
    sender = replace(inside(1, "broadcast_object_list"), groups=(group(pair),), peer=0)
    judgement = judge([elsewhere(0), sender, elsewhere(2)])
    assert 0 not in judgement.suspects


@pytest.mark.parametrize("problem", ["more than 32 process groups", "File too large"])
def test_records_that_cannot_be_read_accuse_no_rank(problem: str) -> None:
    """It may have entered; that is said."""
    silent = replace(behind(1), groups=(), records_problem=problem)
    judgement = judge([waits(0), waits(2), silent])
    assert (judgement.code, judgement.case, judgement.suspects) == ("CC-HANG-004", "unknown", ())


def test_a_rank_that_answers_only_the_second_time_has_moved() -> None:
    """It was importing, or held the GIL: what it does now is no hang."""
    first = [inside(0, "init_process_group", call_of_all=True), replace(rank(1), stack="", frames=())]
    second = [first[0], elsewhere(1)]
    assert [one.moved for one in compare_stacks(second, first)] == [False, True]
    assert judge(compare_stacks(second, first)).suspects == ()
    other_thread = replace(second[1], stack="Thread of another")
    assert [one.moved for one in compare_stacks([second[0], other_thread], second)] == [False, False]


def test_a_thread_that_uploads_is_not_accused() -> None:
    """The script has ended and a thread works, or moves between two looks."""
    leaves = replace(behind(0), left=(("thread", "uploader"),))
    assert (judge([leaves]).code, judge([leaves]).is_thin) == ("CC-HANG-003", True)
    assert judge([replace(leaves, cpu=3.0)]).code != "CC-HANG-003"
    assert judge([replace(leaves, moved=True)]).code != "CC-HANG-003"


def test_a_ring_of_all_ranks_is_found_in_steps_that_grow_with_its_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each rank receives from the next; the circle has all of them."""
    steps = []
    monkeypatch.setattr(waits_module, "_find_way_back", count_calls(waits_module._find_way_back, steps))
    size = 300
    ring = [inside(number, "recv", peer=(number + 1) % size) for number in range(size)]
    judgement = judge(ring)
    assert (judgement.code, len(judgement.suspects), len(steps)) == ("CC-HANG-005", size, 1)


def test_the_main_thread_is_the_last_one() -> None:
    """As faulthandler writes them; the innermost line of the job is where the rank is."""
    stack = (
        'Current thread (most recent call first):\n  File "/usr/lib/python3.11/queue.py", line 171 in get\n\n'
        "Thread 0x1 [main] (most recent call first):\n"
        '  File "/usr/lib/python3.11/site-packages/torch/x.py", line 5 in all_reduce\n'
        '  File "train.py", line 7 in step\n  File "train.py", line 9 in <module>\n'
    )
    frames = main_frames(stack)
    assert [frame.line for frame in frames] == [5, 7, 9]
    assert str(RankEvidence(0, "a", frames=frames).where) == "train.py:7 in step()"
    assert main_frames("garbage\n\x1b[2J") == ()


def test_numbers_are_written_shortly() -> None:
    """Ranges, and an end to them."""
    assert fold_numbers([0, 1, 2, 5]) == "0-2,5" and fold_numbers([]) == ""
    assert fold_numbers(range(0, 100, 2)).endswith(",...")


def test_an_answer_is_read_with_distrust() -> None:
    """What has the wrong type or is out of bounds is left out; the rest is read."""
    row = [3, None, "gloo:all_reduce", "[[1]]", "Float", False, 2.5]
    answer = {
        "ranks": [
            {
                "rank": 0,
                "stack": 0,
                "pid": 7,
                "groups": [{"name": "0", "members": "[0, 1]", "entries": [row, [], [1]]}],
            },
            {"rank": 1, "stack": 9, "cpu": "x", "process": 3, "groups": 5, "exit": 0},
            {"rank": -1},
            "no",
        ],
        "stacks": ['Thread (most recent call first):\n  File "/run/code/train.py", line 3 in f\n'],
        "code": "/run/code/",
        "took": 0.1,
    }
    node = parse_evidence(Untrusted(answer), "gpu01")
    assert [one.rank for one in node.ranks] == [0, 1]
    assert str(node.ranks[0].where) == "train.py:3 in f()"
    assert node.ranks[0].groups[0].members == (0, 1)
    assert node.ranks[0].groups[0].entries == (
        Entry(3, None, "all_reduce", "[[1]]", "Float", False, 2.5, "gloo"),
    )
    assert node.ranks[1].stack == "" and node.ranks[1].ended
    assert parse_evidence(Untrusted({}), "gpu01").ranks == ()


def watcher(process: str = "torchrun", *, halted: bool = False) -> Watcher:
    """Build a process of the second node that starts or watches the ranks."""
    return Watcher("gpu02", process, 4711, halted)


@pytest.mark.parametrize("process", ["torchrun", "agent", "guardian"])
def test_a_halted_process_beside_the_ranks_is_named(process: str) -> None:
    """Also while the ranks make progress: torchrun would not notice their end. A rank that is stopped goes before."""
    halted = judge(seven_of_eight(behind(3)), watchers=[watcher(process, halted=True)])
    running = judge(seven_of_eight(behind(3)), watchers=[watcher(process)])
    both = judge(seven_of_eight(STOPPED), watchers=[watcher(process, halted=True)])

    assert (halted.code, halted.hangs) == ("CC-HANG-013", True)
    assert f"{process} on gpu02 (pid 4711) is halted" in halted.sentence
    assert "clusterctl exec --nodes gpu02 -- kill -CONT 4711" in halted.fix
    assert (running.code, both.code) == ("CC-HANG-004", "CC-HANG-001")


def test_a_torchrun_that_outlives_all_ranks() -> None:
    """Once they have been silent for a while; while one of them lives it may wait for that one."""
    ended = [replace(EXITED, rank=rank, silent=6.0) for rank in range(4)]
    found = judge(ended, watchers=[watcher("agent"), watcher()])

    assert (found.code, found.case) == ("CC-HANG-013", "remains")
    assert found.sentence == "all ranks have ended, and torchrun on gpu02 (pid 4711) has not exited"
    for ranks, watchers in (
        ([*ended[:3], replace(ended[3], silent=2.0)], [watcher()]),
        ([*ended[:3], replace(ended[3], problem="", exit=None)], [watcher()]),
        (ended, [watcher("agent")]),
        ([], [watcher()]),
    ):
        assert judge(ranks, watchers=watchers).code == "CC-HANG-010"


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ({"process": "torchrun", "pid": 4711, "halted": True}, [Watcher("gpu02", "torchrun", 4711, True)]),
        ({"process": "rm -rf /", "pid": 4711, "halted": True}, []),
        ({"process": "agent", "pid": -1, "halted": True}, []),
        ({"process": "agent", "pid": "1; reboot"}, []),
        ("agent", []),
    ],
)
def test_what_a_node_reports_of_them_is_read_with_distrust(entry: object, found: list[Watcher]) -> None:
    """Their names and pids stand in a command."""
    assert list(parse_evidence(Untrusted({"watchers": [entry]}), "gpu02").watchers) == found


def test_a_worker_of_ray_is_where_its_thread_is() -> None:
    """Its main thread waits for tasks; another program's main thread counts wherever the others are."""
    loop = '  File "/v/lib/python3.11/site-packages/ray/_private/worker.py", line 1069 in main_loop\n'
    job = 'Thread (most recent call first):\n  File "train.py", line 13 in load_batch\n\n'
    main = "Thread (most recent call first):\n"
    assert [frame.function for frame in main_frames(job + main + loop)] == ["load_batch"]
    assert [frame.function for frame in main_frames(main + loop)] == ["main_loop"]
    assert [frame.function for frame in main_frames(job + main + loop.replace("ray", "rays"))] == [
        "main_loop"
    ]
