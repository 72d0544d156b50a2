"""The page without its contents, which its script fills: headings, filters, buttons, and the texts of the script."""

from __future__ import annotations

from collections.abc import Sequence

from clusterctl.cli.actions.monitor.ui.feed import FOLD
from clusterctl.plans.report.markup import Child, Html, element, join, live_document
from clusterctl.plans.report.numbers import OVER_TIME, render_switch
from clusterctl.protocol.states import FAILED, RUNNING, STALLED, STOPPED, SUCCEEDED
from clusterctl.specs.text import duration_forms
from clusterctl.translation import language, tr


def render_page(cluster: str) -> str:
    """Draw the page."""
    texts = {
        "data_connected": tr("live"),
        "data_lost": tr("connection lost; connecting again"),
        "data_gone": tr("no answer from `clusterctl ui`: has it ended? Connecting again"),
        "data_working": tr("querying the nodes"),
        "data_gap": tr("some lines are left out here"),
        "data_count": tr("{shown} of {all} lines", shown="{shown}", all="{all}"),
        "data_runs": tr("{shown} of {all} runs", shown="{shown}", all="{all}"),
        "data_hits": tr("{n} of {all}", n="{n}", all="{all}"),
        "data_ago": tr("{age} ago", age="{age}"),
        "data_copied": tr("copied"),
        "data_selected": tr("selected: copy it with the keyboard"),
        "data_follow": tr("Follow"),
        "data_pause": tr("Pause"),
        **{f"data_span_{units}": form for units, form in duration_forms().items()},
    }
    body = [
        element("a", tr("to the contents"), href="#main", class_="skip"),
        element(
            "header",
            element("h1", "clusterctl ", element("span", cluster, class_="faint")),
            element("p", tr("connecting to `clusterctl ui`"), id="connection", role="status", class_="faint"),
        ),
        element("noscript", element("p", tr("This page needs JavaScript."), class_="warn")),
        element(
            "main",
            element("div", id="problem", role="status"),
            _refusal(),
            _list_section(),
            _run_section(),
            _stop_dialog(),
            element("p", id="said", role="status", class_="said"),
            id="main",
            tabindex="-1",
            **texts,
        ),
    ]  # fmt: skip
    return live_document(f"{cluster} - clusterctl", "zh" if language() == "zh" else "en", join(body))


def _link_back() -> Html:
    return element("a", tr("All runs"), href="#")


def _refusal() -> Html:
    """Return the place where the page shows why it cannot show a run."""
    content = element("p", id="refusal", role="status"), element("p", _link_back())
    return element("div", *content, id="refused", class_="empty", hidden="")


def _list_section() -> Html:
    machines = (tr("NODE"), tr("USED BY"), tr("BUSY"), tr("MEMORY"), "°C")
    runs = (tr("JOB"), tr("STATE"), tr("RAN"), tr("STEP"), tr("LOSS"), tr("NODES"), tr("BY"), tr("CAUSE"))
    return element(
        "section",
        element("div", id="machines-strip", class_="strip"),
        element("h2", tr("Runs"), id="list-title"),
        element("div", _list_filters(), element("span", id="runs-count", class_="faint"), id="runs-filters",
                class_="filters", role="search", aria_label=tr("Runs"), hidden=""),
        _filled_table("runs", runs),
        element("div", id="runs-note"),
        element("h2", tr("Machines"), id="machines-title"),
        element("div", id="machines-note", class_="faint"),
        _filled_table("machines", machines),
        id="list",
        aria_labelledby="list-title",
    )  # fmt: skip


def _filled_table(name: str, headings: Sequence[str]) -> Html:
    """Return a table that the script fills; it is hidden until it has a row."""
    head = element("tr", *(element("th", text, scope="col") for text in headings))
    content = element("table", element("thead", head), element("tbody", id=name), class_=name)
    return element("div", content, id=f"{name}-table", class_="scroll", tabindex="0", hidden="")


def _list_filters() -> Html:
    choices = [
        ("", tr("all")),
        ("live", tr("live")),
        *((state, state) for state in (RUNNING, STALLED, SUCCEEDED, FAILED, STOPPED)),
    ]
    options = [element("option", text, value=value) for value, text in choices]
    fields: list[Child] = [
        element("label", tr("state"), " ", element("select", *options, id="list-state")),
        element("label", tr("job"), " ", element("input", id="list-job", type="text")),
        element("label", tr("person"), " ", element("input", id="list-by", type="text")),
    ]
    return join(fields)


def _run_section() -> Html:
    actions: list[Child] = [
        element("button", tr("Diagnose"), id="diagnose", type="button", hidden=""),
        " ",
        element("button", tr("Stop..."), id="stop", type="button", class_="danger", hidden=""),
    ]
    return element(
        "section",
        element("nav", _link_back()),
        element("div", element("div", id="head"), element("p", *actions, class_="actions"), class_="title"),
        element("div", id="summary"),
        element("div", id="culprit", hidden=""),
        element("div", id="answer", role="status"),
        element("div", id="nodes"),
        _log_section(),
        element("div", id="notices", role="status", class_="faint"),
        _plots_section(),
        id="run",
        hidden="",
    )


def _plots_section() -> Html:
    """Return the places of the plots; those over the time come when they are chosen."""
    numbers: list[Child] = [
        element("h3", tr("Numbers of the run")),
        render_switch("axis"),
        element("div", id="numbers", class_="over-steps"),
        element("div", id=f"{FOLD}/{OVER_TIME}", class_="over-time"),
    ]
    parts = [element("div", id=name) for name in ("node-plots", "timeline", "about")]
    return element("div", element("section", *numbers, class_="numbers"), *parts, id="plots")


def _log_section() -> Html:
    options = [
        _switch("stderr", tr("stderr only")),
        _switch("times", tr("times")),
        _switch("wrap", tr("wrap"), is_on=True),
        _switch("matches", tr("matches only")),
        element("span", id="count", class_="faint"),
    ]
    fields: list[Child] = [
        _field("rank", tr("rank"), "0-3,7"),
        _field("node", tr("node"), "gpu01"),
        element("button", tr("Options"), id="options", type="button", aria_expanded="false"),
        element("span", *options, class_="options"),
    ]
    search: list[Child] = [
        element("label", tr("search"), " ", element("input", id="search", type="search")),
        element("button", "↑", id="previous", type="button", aria_label=tr("previous match")),
        element("button", "↓", id="next", type="button", aria_label=tr("next match")),
        element("span", id="hits", role="status", class_="faint"),
        element("button", tr("Pause"), id="follow", type="button"),
        element("a", tr("Download"), id="download", href="#", download=""),
    ]
    return element(
        "section",
        element("h3", tr("Log"), id="log-title"),
        element("div", *fields, class_="filters", role="group", aria_label=tr("Log")),
        element("div", *search, class_="filters", role="search", aria_label=tr("search")),
        element("div", id="lines", role="log", tabindex="0", aria_labelledby="log-title", class_="mono"),
        id="log",
    )


def _field(name: str, label: str, example: str) -> Html:
    return element(
        "label", label, " ", element("input", id=f"filter-{name}", type="text", placeholder=example)
    )


def _switch(name: str, label: str, *, is_on: bool = False) -> Html:
    box = element("input", id=f"log-{name}", type="checkbox", checked="" if is_on else None)
    return element("label", box, " ", label, class_="switch")


def _stop_dialog() -> Html:
    return element(
        "dialog",
        element("div", id="question"),
        element("button", tr("Cancel"), id="keep", type="button", autofocus=""),
        " ",
        element("button", tr("Stop the run"), id="confirm", type="button", class_="danger"),
        id="ask",
        aria_labelledby="question",
    )
