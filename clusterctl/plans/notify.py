"""What the launching machine does when a run has ended or stalls: the job's hooks, and messages to chat services.

`Hooks` are kept in a file, for a machine that is off when the run ends.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from typing_extensions import TypedDict

from clusterctl.plans.diagnose.kept import TIME_LIMIT, KeptDiagnosis
from clusterctl.plans.launch.template import make_template, quote_template
from clusterctl.plans.runs.documents import HooksEntry
from clusterctl.plans.runs.verdict import Verdict, verdict_to_json
from clusterctl.protocol.root_cause import render_ending
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.states import RUNNING, STALLED, STOPPED, SUCCEEDED, TIMEOUT
from clusterctl.protocol.tracebacks import strip_rank
from clusterctl.protocol.untrusted import MalformedError, parse_object
from clusterctl.specs.job.model import Notify, OnEnd
from clusterctl.specs.nodeset import fold_names, group_values
from clusterctl.specs.text import command_line, plural, render_duration
from clusterctl.translation import english_of, tr

VERSION = 1  # of the file of hooks
MAX_LINE = 300  # bytes; six lines make a message, and WeCom takes 2048
_END_NAMES = {SUCCEEDED: "succeeded", TIMEOUT: "timeout", STOPPED: "stopped"}
_REPLY_KEYS = {"feishu": ("code", "msg"), "dingtalk": ("errcode", "errmsg"), "wecom": ("errcode", "errmsg")}
_URL_ESCAPES = str.maketrans({"+": "%2B", "/": "%2F", "=": "%3D"})  # what base64 has and a query must not


@dataclass(frozen=True)
class Hooks:
    """The hooks of one run; `folder` holds the job file, and the command runs in it."""

    job: str
    cluster: str
    folder: str
    on_end: OnEnd | None
    notify: tuple[Notify, ...]

    @property
    def has_any(self) -> bool:
        """Return whether there is anything to do."""
        return self.on_end is not None or bool(self.notify)


class HooksRecord(TypedDict):
    """What is kept of a run's hooks on the launching machine."""

    version: int
    job: str
    cluster: str
    folder: str
    on_end: dict[str, Any] | None
    notify: list[dict[str, Any]]


def hooks_to_record(hooks: Hooks) -> dict[str, Any]:
    """Return what is written down."""
    return {"version": VERSION, **asdict(hooks)}


def hooks_from_record(raw: Any) -> Hooks | None:
    """Read what was written down; None if it is not that."""
    try:
        record = cast("HooksRecord", raw)
        if record["version"] != VERSION:
            return None
        on_end, notify = record["on_end"], record["notify"]
        command = None if on_end is None else OnEnd(**_lists_to_tuples(on_end, "command", "when"))
        notices = tuple(Notify(**_lists_to_tuples(entry, "when")) for entry in notify)
        return Hooks(str(record["job"]), str(record["cluster"]), str(record["folder"]), command, notices)
    except (TypeError, KeyError, ValueError, IndexError):
        return None


def _lists_to_tuples(entry: Mapping[str, Any], *list_keys: str) -> dict[str, Any]:
    for name in list_keys:
        if not isinstance(entry[name], list):
            raise TypeError(name)
    return {key: tuple(map(str, value)) if key in list_keys else value for key, value in entry.items()}


def render_hooks(on_end: OnEnd | None, notify: Sequence[Notify]) -> list[str]:
    """Return what would be done, as comments for `launch --dry-run`."""
    lines = []
    if on_end is not None:
        command = " ".join(quote_template(make_template(word)) for word in on_end.command)
        lines.append(
            tr(
                "# when it has ended{states}, on this machine: {command}",
                states=_render_when(on_end.when),
                command=command,
            )
        )
    for entry in notify:
        states, what = _render_when(entry.when), describe_notification(entry)
        secret = tr(", signed with {variable}", variable=f"${entry.secret_from}") if entry.secret_from else ""
        lines.append(
            tr("# when it has ended{states}: {what}{secret}", states=states, what=what, secret=secret)
        )
    return lines


def describe_on_end(on_end: OnEnd) -> str:
    """Return before a launch what the job runs on this machine: another person may have written it."""
    command = " ".join(quote_template(make_template(word)) for word in on_end.command)
    return tr(
        "will run here when it ends{states}: {command}", states=_render_when(on_end.when), command=command
    )


def describe_notification(entry: Notify) -> str:
    """Name a notification without its URL."""
    return tr(
        "a message to {service}, its URL from {variable}", service=entry.to, variable=f"${entry.url_from}"
    )


def _render_when(when: Sequence[str]) -> str:
    return tr(" ({states})", states=", ".join(when)) if when else ""


def hooks_to_json(on_end: OnEnd | None, notify: Sequence[Notify]) -> HooksEntry:
    """Return their part of `launch --dry-run --json`."""
    return {
        "on_end": None
        if on_end is None
        else {
            "command": list(on_end.command),
            "when": list(on_end.when),
            "time_limit": on_end.time_limit,
        },
        "notify": [
            {
                "to": entry.to,
                "url_from": entry.url_from,
                "secret_from": entry.secret_from,
                "when": list(entry.when),
            }
            for entry in notify
        ],
    }


@dataclass(frozen=True)
class RunEnd:
    """A run that has ended; `seconds` is how long it took, `command` how a command to paste begins."""

    job: str
    cluster: str
    seconds: float
    command: str
    verdict: Verdict


@dataclass(frozen=True)
class WebhookRequest:
    """What is posted; `query` is added to the URL."""

    body: Mapping[str, Any]
    query: str = ""


def name_end(state: str) -> str:
    """Return the word of `when` for a state; a lost or unknown run has failed."""
    return _END_NAMES.get(state, "failed")


def is_for_end(when: Sequence[str], state: str) -> bool:
    """Return whether a hook is for this end."""
    return not when or name_end(state) in when


def render_message(run_end: RunEnd) -> str:
    """Write the message, always in English: what ended how, after how long, why, and the command for the rest."""
    verdict = run_end.verdict
    details = f", {plural(verdict.attempt, 'attempt')}" if verdict.attempts else ""
    if verdict.smaller is not None:
        details += f", the last on {verdict.smaller['nodes']} of {verdict.smaller['of']} nodes"
    head = f"{run_end.job} {verdict.state} after {english_of(render_duration(run_end.seconds))}{details}"
    location = f"run {verdict.run_id} on {run_end.cluster}, {fold_names(verdict.node_states)}"
    return "\n".join(map(_cut, [head, location, *_render_why(verdict), _render_next_command(run_end)]))


def _render_why(verdict: Verdict) -> list[str]:
    hang = verdict.hang
    known = hang is not None and (hang.why != TIME_LIMIT or hang.judgement.hangs)
    where = (
        [english_of(hang.summary), english_of(hang.judgement.sentence)] if hang is not None and known else []
    )
    return [*_render_cause(verdict), *where]


def _render_cause(verdict: Verdict) -> list[str]:
    if verdict.cause is not None:
        failure = verdict.cause.failure
        location = f"rank {failure.rank} on {failure.node}" if failure.rank is not None else failure.node
        exception = strip_rank(failure.exception)
        return [f"cause: {location}, {render_ending(failure)}" + (f": {exception}" if exception else "")]
    if verdict.state == SUCCEEDED:
        return []
    groups = group_values((reason, name) for name, reason in verdict.reasons.items())
    return [f"{fold_names(names)}: {reason}" for reason, names in groups.items()][:3]


def _render_next_command(run_end: RunEnd) -> str:
    verdict = run_end.verdict
    rank = verdict.cause.failure.rank if verdict.cause is not None else None
    if rank is not None:
        return command_line("logs", verdict.run_id, "--rank", str(rank), command=run_end.command)
    return command_line("status", verdict.run_id, command=run_end.command)


def run_end_to_json(run_end: RunEnd) -> dict[str, Any]:
    """Return what `on_end` reads and a webhook gets."""
    return {
        "schema": 1,
        "run": run_end.verdict.run_id,
        "job": run_end.job,
        "cluster": run_end.cluster,
        "seconds": round(run_end.seconds, 1),
        "message": render_message(run_end),
        "verdict": verdict_to_json(run_end.verdict),
    }


def stall_of(hooks: Hooks, run_id: RunId, kept: KeptDiagnosis, nodes: Sequence[str], command: str) -> RunEnd:
    """Return what is sent when a run stalls: its parts still run, and there is no cause."""
    verdict = Verdict(run_id, STALLED, dict.fromkeys(nodes, RUNNING), None, {}, {}, hang=kept)
    return RunEnd(hooks.job, hooks.cluster, kept.seconds or 0.0, command, verdict)


def render_webhook_request(run_end: RunEnd, notify: Notify, secret: str | None, now: float) -> WebhookRequest:
    """Return what a service is sent; `now` is for the signature, in seconds since 1970."""
    message = render_message(run_end)
    if notify.to == "slack":
        return WebhookRequest({"text": _escape_slack(message)})
    if notify.to == "feishu":
        body = {"msg_type": "text", "content": {"text": _without_tags(message)}}
        return WebhookRequest({**sign_feishu(secret, int(now)), **body} if secret else body)
    if notify.to in ("dingtalk", "wecom"):
        query = sign_dingtalk(secret, int(now * 1000)) if secret else ""
        return WebhookRequest({"msgtype": "text", "text": {"content": message}}, query)
    return WebhookRequest(run_end_to_json(run_end))


def sign_feishu(secret: str, seconds: int) -> dict[str, str]:
    """Sign as Feishu wants it: an empty text under the key `seconds\\nsecret`."""
    digest = hmac.new(f"{seconds}\n{secret}".encode(), b"", hashlib.sha256).digest()
    return {"timestamp": str(seconds), "sign": base64.b64encode(digest).decode("ascii")}


def sign_dingtalk(secret: str, milliseconds: int) -> str:
    """Sign as DingTalk wants it: the text `milliseconds\\nsecret` under the secret, in the URL."""
    digest = hmac.new(secret.encode(), f"{milliseconds}\n{secret}".encode(), hashlib.sha256).digest()
    sign = base64.b64encode(digest).decode("ascii").translate(_URL_ESCAPES)
    return f"timestamp={milliseconds}&sign={sign}"


def describe_rejection(service: str, status: int, body: str) -> str:
    """Return why a service rejected a message, or nothing; some do so with the status of success."""
    if 300 <= status < 400:
        return tr("HTTP {status}: redirects are not followed", status=status)
    if not 200 <= status < 300:
        text = _cut(_one_line(body))
        return tr("HTTP {status}: {text}", status=status, text=text) if text else f"HTTP {status}"
    code_key, message_key = _REPLY_KEYS.get(service, ("", ""))
    if not code_key:
        return ""
    try:
        answer = parse_object(body.encode("utf-8", "replace"))
    except MalformedError:
        return tr("not a reply of {service}: {text}", service=service, text=_cut(_one_line(body)))
    if answer.integer(code_key if code_key in answer else "StatusCode") != 0:
        text = _cut(_one_line(answer.text(message_key) or body))
        return tr("{service} rejected it: {text}", service=service, text=text)
    return ""


def _escape_slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _without_tags(text: str) -> str:
    """Keep `<at user_id="all">` in an exception's words from calling everybody."""
    return text.replace("<", "\N{FULLWIDTH LESS-THAN SIGN}")


def _one_line(text: str) -> str:
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())


def _cut(line: str) -> str:
    raw = _one_line(line).encode("utf-8", "replace")
    if len(raw) <= MAX_LINE:
        return raw.decode()
    return raw[: MAX_LINE - 3].decode("utf-8", "ignore") + "…"
