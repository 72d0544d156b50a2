"""What is reported of a run that has ended, and the form in which each service takes it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from clusterctl.plans.diagnose.evidence import Frame, RankEvidence
from clusterctl.plans.diagnose.hang import Judgement
from clusterctl.plans.diagnose.kept import KeptDiagnosis
from clusterctl.plans.notify import (
    Hooks,
    RunEnd,
    describe_on_end,
    describe_rejection,
    hooks_from_record,
    hooks_to_record,
    is_for_end,
    render_hooks,
    render_message,
    render_webhook_request,
    run_end_to_json,
    sign_dingtalk,
    sign_feishu,
    stall_of,
)
from clusterctl.plans.runs.state import Attempt
from clusterctl.plans.runs.verdict import Verdict
from clusterctl.protocol.root_cause import Cause, Failure
from clusterctl.protocol.run_id import RunId
from clusterctl.specs.job.model import Notify, OnEnd
from clusterctl.specs.text import render_duration
from clusterctl.translation import Language, use_language

RUN = "digits-20261121T101500-ab12"
NOW = 1599360473.25
LANGUAGES: tuple[Language, ...] = ("en", "zh")


def ended(state: str = "FAILED", exception: str = "ValueError: bad loss", **changes: object) -> RunEnd:
    """Build a run of two nodes that has ended."""
    failure = Failure("gpu02", 3, 1, None, 5.0, exception=exception)
    cause = Cause(failure, ()) if state == "FAILED" else None
    parts = {"gpu01": "STOPPED", "gpu02": state}
    values = {
        "run_id": RUN,
        "state": state,
        "node_states": parts,
        "cause": cause,
        "reasons": {},
        "left_processes": {},
        **changes,
    }
    return RunEnd("digits", "lab-a", 11520.0, "clusterctl -i a.yaml", Verdict(**values))  # type: ignore[arg-type]  # checked by what is rendered


def notify(to: str) -> Notify:
    """Build a notification."""
    return Notify(to=to, url_from="URL")


def test_the_message_of_a_failure() -> None:
    """Job, state, how long, run, where, the cause, and the command that shows the rest."""
    assert render_message(ended()).splitlines() == [
        "digits FAILED after 3h12m",
        f"run {RUN} on lab-a, gpu[01-02]",
        "cause: rank 3 on gpu02, exit code 1: ValueError: bad loss",
        f"clusterctl -i a.yaml logs {RUN} --rank 3",
    ]


def test_the_message_of_a_run_with_fewer_nodes() -> None:
    """That it went on without some of its nodes is in the first line."""
    attempt = Attempt(1, "node_lost", "gpu03 is lost", "gpu03", None, None, None)
    message = render_message(
        ended("SUCCEEDED", attempt=2, attempts=(attempt,), smaller={"nodes": 2, "of": 3})
    )
    assert message.startswith("digits SUCCEEDED after 3h12m, 2 attempts, the last on 2 of 3 nodes\n")


def test_the_message_of_a_stall() -> None:
    """The run goes on; where its ranks are, in English, also in the message of its end."""
    judgement = Judgement("CC-HANG-008", "", {"nodes": "gpu02"})
    rank = RankEvidence(1, "gpu02", frames=(Frame("train.py", 4, "load"),))
    kept = KeptDiagnosis("stall", 600.0, judgement, (rank,))
    hooks = Hooks("digits", "lab-a", "/job", None, (replace(notify("slack"), when=("stalled",)),))
    where = "when no rank had made progress for 10m, rank 1 (gpu02) was at train.py:4 in load()"
    use_language("zh")
    try:
        lines = render_message(
            stall_of(hooks, RunId(RUN), kept, ["gpu01", "gpu02"], "clusterctl")
        ).splitlines()
    finally:
        use_language("en")
    assert lines[:3] == ["digits STALLED after 10m", f"run {RUN} on lab-a, gpu[01-02]", where]
    assert lines[3].startswith("gpu02 does not answer") and lines[4] == f"clusterctl status {RUN}"
    assert where in render_message(ended(hang=kept))
    assert where not in render_message(
        ended(hang=replace(kept, why="time_limit", judgement=Judgement("CC-HANG-009", "")))
    )
    assert not is_for_end(("stalled",), "FAILED")


def test_the_message_of_other_ends() -> None:
    """A success needs no reason; nodes that ended for the same one are folded."""
    reasons = {"gpu01": "time limit of 12h", "gpu02": "time limit of 12h"}

    assert len(render_message(ended("SUCCEEDED")).splitlines()) == 3
    assert "gpu[01-02]: time limit of 12h" in render_message(ended("TIMEOUT", reasons=reasons))


def test_a_message_stays_small_and_of_one_line_each() -> None:
    """Whatever a rank reported: no control character, no line of its own, and WeCom's 2048 bytes are kept."""
    said = render_message(ended(exception="ValueError: \x1b[31m\n" + "坏" * 3000))

    assert len(said.encode()) < 2048
    assert len(said.splitlines()) == 4
    assert said.endswith("--rank 3")
    assert "\x1b" not in said


@pytest.mark.parametrize(
    ("to", "body"),
    [
        ("slack", {"text": "MESSAGE"}),
        ("feishu", {"msg_type": "text", "content": {"text": "MESSAGE"}}),
        ("dingtalk", {"msgtype": "text", "text": {"content": "MESSAGE"}}),
        ("wecom", {"msgtype": "text", "text": {"content": "MESSAGE"}}),
    ],
)
def test_the_form_of_each_service(to: str, body: dict[str, object]) -> None:
    """As their pages say."""
    post = render_webhook_request(ended(), notify(to), None, NOW)

    assert post.query == ""
    assert post.body == json.loads(json.dumps(body).replace('"MESSAGE"', json.dumps(render_message(ended()))))


def test_no_person_is_called_by_an_exception() -> None:
    """Slack's and Feishu's own signs are taken out of what a rank reported."""
    shouting = ended(exception='KeyError: <!channel> <at user_id="all">x</at> &')

    assert "&lt;!channel&gt;" in render_webhook_request(shouting, notify("slack"), None, NOW).body["text"]
    assert "<" not in render_webhook_request(shouting, notify("feishu"), None, NOW).body["content"]["text"]


def test_a_webhook_gets_the_verdict() -> None:
    """The same object that `on_end` reads."""
    body = render_webhook_request(ended(), notify("webhook"), None, NOW).body

    assert body == run_end_to_json(ended())
    assert (body["schema"], body["run"], body["job"], body["seconds"]) == (1, RUN, "digits", 11520.0)
    assert body["verdict"]["cause"]["exception"] == "ValueError: bad loss"


def test_signatures() -> None:
    """Known answers, made with `openssl dgst -sha256 -mac hmac`."""
    feishu = render_webhook_request(ended(), notify("feishu"), "SEC1", NOW).body

    assert sign_feishu("SEC1", 1599360473) == {"timestamp": "1599360473", "sign": FEISHU}
    assert {key: feishu[key] for key in ("timestamp", "sign")} == sign_feishu("SEC1", 1599360473)
    assert sign_dingtalk("SEC1", 1599360473250) == f"timestamp=1599360473250&sign={DINGTALK}"
    assert render_webhook_request(ended(), notify("dingtalk"), "SEC1", NOW).query == sign_dingtalk(
        "SEC1", 1599360473250
    )


FEISHU = "0hLYmfoUxI4qR6gxrHZUwT+7HcMcncQkWF5gKyZReuU="
DINGTALK = "%2FlfEvQUceFH14tXx3clADsL5oBXmZ7gM%2BZITCYvIV%2Fk%3D"


@pytest.mark.parametrize(
    ("to", "status", "body", "complaint"),
    [
        ("slack", 200, "ok", ""),
        ("slack", 404, "no_service", "HTTP 404: no_service"),
        ("webhook", 204, "", ""),
        ("webhook", 500, "", "HTTP 500"),
        ("webhook", 302, "", "HTTP 302: redirects are not followed"),
        ("feishu", 200, '{"code": 0, "msg": "success"}', ""),
        ("feishu", 200, '{"StatusCode": 0, "StatusMessage": "success"}', ""),
        ("feishu", 200, '{"code": 19021, "msg": "sign match fail"}', "feishu rejected it: sign match fail"),
        ("dingtalk", 200, '{"errcode": 0, "errmsg": "ok"}', ""),
        (
            "dingtalk",
            200,
            '{"errcode": 310000, "errmsg": "sign not match"}',
            "dingtalk rejected it: sign not match",
        ),
        (
            "wecom",
            200,
            '{"errcode": 93000, "errmsg": "invalid webhook url"}',
            "wecom rejected it: invalid webhook url",
        ),
        ("wecom", 200, "<html>login", "not a reply of wecom: <html>login"),
        ("wecom", 200, "[]", "not a reply of wecom: []"),
    ],
)
def test_answers(to: str, status: int, body: str, complaint: str) -> None:
    """A yes is silent; some services say no with status 200."""
    assert describe_rejection(to, status, body) == complaint


@pytest.mark.parametrize(
    ("when", "state", "wanted"),
    [
        ((), "LOST", True),
        (("failed",), "FAILED", True),
        (("failed",), "FAILED_SETUP", True),
        (("failed",), "LOST", True),
        (("failed",), "UNKNOWN", True),
        (("failed",), "TIMEOUT", False),
        (("succeeded", "stopped"), "STOPPED", True),
        (("timeout",), "SUCCEEDED", False),
    ],
)
def test_which_ends_a_hook_is_for(when: tuple[str, ...], state: str, wanted: bool) -> None:
    """A lost run counts as failed."""
    assert is_for_end(when, state) is wanted


def test_hooks_outlive_the_launch() -> None:
    """What a launch writes down is what an attach reads; names of variables are in it and never their values."""
    on_end = OnEnd(command=("./tell.sh", "a b"), when=("failed",), time_limit=5.0)
    hooks = Hooks("digits", "lab-a", "/home/ann/job", on_end, (notify("slack"),))

    assert hooks_from_record(json.loads(json.dumps(hooks_to_record(hooks)))) == hooks
    assert hooks_from_record({"version": 2}) is None
    assert hooks_from_record([]) is None
    assert hooks_from_record({**hooks_to_record(hooks), "on_end": {"command": "rm -rf"}}) is None


def test_a_dry_run_shows_them() -> None:
    """Which hook, for which ends."""
    on_end = OnEnd(command=("./tell.sh", "a b"), when=("failed", "timeout"))

    assert render_hooks(on_end, (notify("slack"),)) == [
        "# when it has ended (failed, timeout), on this machine: ./tell.sh 'a b'",
        "# when it has ended: a message to slack, its URL from $URL",
    ]


def test_a_launch_reports_what_it_will_run_here() -> None:
    """Each word as a shell would take it, and for which ends."""
    assert describe_on_end(OnEnd(command=("./tell.sh", "a b"), when=("failed",))) == (
        "will run here when it ends (failed): ./tell.sh 'a b'"
    )
    assert describe_on_end(OnEnd(command=("true",), when=())) == "will run here when it ends: true"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "0 s"),
        (42.4, "42 s"),
        (60, "1m"),
        (3700, "1h01m"),
        (86400, "1d"),
        (90000, "1d01h"),
        (-5, "0 s"),
    ],
)
def test_spans(seconds: float, words: str) -> None:
    """Two units are enough."""
    assert render_duration(seconds) == words


@pytest.mark.parametrize("to", ["slack", "feishu", "dingtalk", "wecom", "webhook"])
@pytest.mark.parametrize(
    "run_end",
    [
        ended(),
        ended("SUCCEEDED"),
        ended(
            "TIMEOUT", reasons={"gpu01": "time limit of 12h", "gpu02": "gpu01 is lost: no answer"}, attempt=2
        ),
    ],
    ids=["failed", "succeeded", "timeout"],
)
def test_a_service_is_sent_english_in_every_language(run_end: RunEnd, to: str) -> None:
    """A program may read it: the user's language is for the user's screen."""
    bodies = []
    for language in LANGUAGES:
        use_language(language)
        try:
            bodies.append(render_webhook_request(run_end, notify(to), "secret", NOW))
        finally:
            use_language("en")
    assert bodies[0] == bodies[1]
