"""Message and payload per chat service; stored hooks."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from clusterctl.plans.launch.template import quote, text
from clusterctl.plans.runs.state import CANCELLED, SUCCEEDED, TIMEOUT
from clusterctl.plans.runs.verdict import Verdict, to_json
from clusterctl.protocol.root_cause import render_ending
from clusterctl.protocol.tracebacks import strip_rank
from clusterctl.protocol.untrusted import MalformedError, parse_object
from clusterctl.specs.job.model import Notify, OnEnd
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import command_line, counted, render_span

LONGEST_LINE = 300  # bytes; six lines make a message, and WeCom takes 2048
_ENDS = {SUCCEEDED: "succeeded", TIMEOUT: "timeout", CANCELLED: "cancelled"}
_ANSWERS = {"feishu": ("code", "msg"), "dingtalk": ("errcode", "errmsg"), "wecom": ("errcode", "errmsg")}
_URL_SIGNS = str.maketrans({"+": "%2B", "/": "%2F", "=": "%3D"})  # what base64 has and a query must not


@dataclass(frozen=True)
class Ended:
    """A run that has ended; `seconds` is how long it took, `command` how a command to paste begins."""

    job: str
    cluster: str
    seconds: float
    command: str
    verdict: Verdict


@dataclass(frozen=True)
class Post:
    """What is posted; `query` is added to the URL."""

    body: Mapping[str, Any]
    query: str = ""


def name_end(state: str) -> str:
    """Give the word of `when` for a state; a lost or unknown run has failed."""
    return _ENDS.get(state, "failed")


def is_wanted(when: Sequence[str], state: str) -> bool:
    """Tell whether a hook is for this end."""
    return not when or name_end(state) in when


def render_message(ended: Ended) -> str:
    """Write the message: what ended how, after how long, why, and the command that shows the rest."""
    verdict = ended.verdict
    tries = f", {counted(verdict.attempt, 'attempt')}" if verdict.attempts else ""
    head = f"{ended.job} {verdict.state} after {render_span(ended.seconds)}{tries}"
    where = f"run {verdict.run} on {ended.cluster}, {fold_names(verdict.parts)}"
    return "\n".join(map(_cut, [head, where, *_render_why(verdict), _render_more(ended)]))


def _render_why(verdict: Verdict) -> list[str]:
    if verdict.cause is not None:
        failure = verdict.cause.failure
        place = f"rank {failure.rank} on {failure.node}" if failure.rank is not None else failure.node
        said = strip_rank(failure.exception)
        return [f"cause: {place}, {render_ending(failure)}" + (f": {said}" if said else "")]
    if verdict.state == SUCCEEDED:
        return []
    groups: dict[str, list[str]] = {}
    for name, reason in verdict.reasons.items():
        groups.setdefault(reason, []).append(name)
    return [f"{fold_names(names)}: {reason}" for reason, names in groups.items()][:3]


def _render_more(ended: Ended) -> str:
    verdict = ended.verdict
    rank = verdict.cause.failure.rank if verdict.cause is not None else None
    if rank is not None:
        return command_line("logs", verdict.run, "--rank", str(rank), command=ended.command)
    return command_line("status", verdict.run, command=ended.command)


def ended_to_json(ended: Ended) -> dict[str, Any]:
    """Give what `on_end` reads and a webhook gets."""
    return {
        "schema": 1,
        "run": ended.verdict.run,
        "job": ended.job,
        "cluster": ended.cluster,
        "seconds": round(ended.seconds, 1),
        "message": render_message(ended),
        "verdict": to_json(ended.verdict),
    }


# the form of each service


def render_post(ended: Ended, notify: Notify, secret: str | None, now: float) -> Post:
    """Give what a service is sent; `now` is for the signature, in seconds since 1970."""
    message = render_message(ended)
    if notify.to == "slack":
        return Post({"text": _escape_slack(message)})
    if notify.to == "feishu":
        body = {"msg_type": "text", "content": {"text": _without_tags(message)}}
        return Post({**sign_feishu(secret, int(now)), **body} if secret else body)
    if notify.to in ("dingtalk", "wecom"):
        query = sign_dingtalk(secret, int(now * 1000)) if secret else ""
        return Post({"msgtype": "text", "text": {"content": message}}, query)
    return Post(ended_to_json(ended))


def sign_feishu(secret: str, seconds: int) -> dict[str, str]:
    """Sign as Feishu wants it: an empty text under the key `seconds\\nsecret`."""
    digest = hmac.new(f"{seconds}\n{secret}".encode(), b"", hashlib.sha256).digest()
    return {"timestamp": str(seconds), "sign": base64.b64encode(digest).decode("ascii")}


def sign_dingtalk(secret: str, milliseconds: int) -> str:
    """Sign as DingTalk wants it: the text `milliseconds\\nsecret` under the secret, in the URL."""
    digest = hmac.new(secret.encode(), f"{milliseconds}\n{secret}".encode(), hashlib.sha256).digest()
    sign = base64.b64encode(digest).decode("ascii").translate(_URL_SIGNS)
    return f"timestamp={milliseconds}&sign={sign}"


def read_answer(service: str, status: int, body: str) -> str:
    """Say what a service did not like, or nothing; some say no with the status of a yes."""
    if 300 <= status < 400:
        return f"it answers with a redirect ({status}), which is not followed"
    if not 200 <= status < 300:
        return f"it answers {status}: {_cut(_flat(body))}".rstrip(": ")
    code, words = _ANSWERS.get(service, ("", ""))
    if not code:
        return ""
    try:
        answer = parse_object(body.encode("utf-8", "replace"))
    except MalformedError:
        return f"its answer is not what {service} says: {_cut(_flat(body))}"
    if answer.integer(code if code in answer else "StatusCode") != 0:
        return f"{service} refuses it: {_cut(_flat(answer.text(words) or body))}"
    return ""


def _escape_slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _without_tags(text: str) -> str:
    """Keep `<at user_id="all">` in an exception's words from calling everybody."""
    return text.replace("<", "\N{FULLWIDTH LESS-THAN SIGN}")


def _flat(text: str) -> str:
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def _cut(line: str) -> str:
    raw = _flat(line).encode("utf-8", "replace")
    if len(raw) <= LONGEST_LINE:
        return raw.decode()
    return raw[: LONGEST_LINE - 3].decode("utf-8", "ignore") + "…"


VERSION = 1


@dataclass(frozen=True)
class Hooks:
    """The hooks of one run; `folder` is where the job file lies and the command is run."""

    job: str
    cluster: str
    folder: str
    on_end: OnEnd | None
    notify: tuple[Notify, ...]

    @property
    def any(self) -> bool:
        """Tell whether there is anything to do."""
        return self.on_end is not None or bool(self.notify)


def to_record(hooks: Hooks) -> dict[str, Any]:
    """Give what is written down."""
    return {"version": VERSION, **asdict(hooks)}


def hooks_from_record(raw: Any) -> Hooks | None:
    """Read what was written down; None if it is not that."""
    try:
        if raw["version"] != VERSION:
            return None
        on_end, notify = raw["on_end"], raw["notify"]
        command = None if on_end is None else OnEnd(**_tuples(on_end, "command", "when"))
        notices = tuple(Notify(**_tuples(entry, "when")) for entry in notify)
        return Hooks(str(raw["job"]), str(raw["cluster"]), str(raw["folder"]), command, notices)
    except (TypeError, KeyError, ValueError, IndexError):
        return None


def _tuples(entry: Mapping[str, Any], *lists: str) -> dict[str, Any]:
    for name in lists:
        if not isinstance(entry[name], list):
            raise TypeError(name)
    return {key: tuple(map(str, value)) if key in lists else value for key, value in entry.items()}


def render_hooks(on_end: OnEnd | None, notify: Sequence[Notify]) -> list[str]:
    """Say what would be done, as comments for `launch --dry-run`."""
    lines = []
    if on_end is not None:
        words = " ".join(quote(text(word)) for word in on_end.command)
        lines.append(f"# when it has ended{_ends(on_end.when)}, here: {words}")
    for entry in notify:
        secret = f", signed with ${entry.secret_from}" if entry.secret_from else ""
        lines.append(f"# when it has ended{_ends(entry.when)}: {describe(entry)}{secret}")
    return lines


def announce(on_end: OnEnd) -> str:
    """Say before a launch what the job has run on this machine: somebody else may have written it."""
    words = " ".join(quote(text(word)) for word in on_end.command)
    return f"will run here when it ends{_ends(on_end.when)}: {words}"


def describe(entry: Notify) -> str:
    """Name a notification without its URL."""
    return f"a message to {entry.to}, its URL from ${entry.url_from}"


def _ends(when: Sequence[str]) -> str:
    return f" ({', '.join(when)})" if when else ""


def hooks_to_json(on_end: OnEnd | None, notify: Sequence[Notify]) -> dict[str, Any]:
    """Give their place in `launch --dry-run --json`."""
    return {
        "on_end": None if on_end is None else asdict(on_end),
        "notify": [asdict(entry) for entry in notify],
    }
