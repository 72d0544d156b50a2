"""Two runs on one page: what differs comes first, and only that; what is equal is folded."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from reported import BEGAN, Tags, make_record, make_run

from clusterctl.plans.report.comparison import compare_code, list_groups, name_runs
from clusterctl.plans.report.page import render_report
from clusterctl.plans.report.reported_run import ReportedRun
from clusterctl.plans.runs.cause import Explanation
from clusterctl.plans.runs.history import Launched
from clusterctl.protocol.run_id import RunId

OTHER = RunId("digits-20261124T080910-77aa")


def make_other(launched: Launched, code: dict[str, str] | None = None) -> ReportedRun:
    """Make a run that was launched an hour later and has succeeded."""
    record = replace(make_record("gpu01"), launched=launched, code=code)
    run = make_run({"gpu01": record}, run_id=OTHER, explanation=Explanation())
    parts = {
        name: replace(part, submitted=BEGAN + 3600) if part else None for name, part in run.parts.items()
    }
    return replace(run, parts=parts)


def make_first(launched: Launched | None = None, code: dict[str, str] | None = None) -> ReportedRun:
    """Make the run that failed."""
    record = replace(make_record("gpu01"), code=code)
    return make_run({"gpu01": replace(record, launched=launched or record.launched)})


def find_differences(first: ReportedRun, second: ReportedRun) -> dict[str, tuple[str, str]]:
    """Return what differs, by name."""
    pairs = [pair for group in list_groups(first, second) for pair in group.pairs]
    return {pair.name: (pair.first, pair.second) for pair in pairs if pair.first != pair.second}


def read_parts(page: str) -> list[str]:
    """Return the texts of the sections of a page, in order."""
    return [Tags(part).text for part in re.split(r"<h2>", page)]


def test_what_a_person_has_changed_differs() -> None:
    """Options one by one, variables, keys of the job, versions; of what is equal nothing."""
    launched = make_record("gpu01").launched
    changed = replace(
        launched,
        argv=("train.py", "--lr", "0.05", "--amp"),
        env={"NCCL_DEBUG": "WARN", "SEED": "7"},
        job={
            "grace": "30.0",
            "stall": '{"after": 60.0, "then": ""}',
            "restart": "{",
            "setup": "pip install foo==3.0",
        },
        about={**launched.about, "torch": "2.12"},
    )
    found = find_differences(
        make_first(replace(launched, job={"grace": "10.0", "stall": '{"after": 600.0, "then": ""}'})),
        make_other(changed),
    )
    assert {
        name: found[name]
        for name in (
            "--lr",
            "--amp",
            "NCCL_DEBUG",
            "SEED",
            "grace",
            "stall.after",
            "restart",
            "setup",
            "torch",
        )
    } == {
        "--lr": ("0.1", "0.05"),
        "--amp": ("", "set"),
        "NCCL_DEBUG": ("INFO", "WARN"),
        "SEED": ("", "7"),
        "grace": ("10", "30"),
        "stall.after": ("600", "60"),
        "restart": ("", "{"),
        "setup": ("", "pip install foo==3.0"),
        "torch": ("2.13", "2.12"),
    }
    assert not {"program", "stall.then"} & found.keys()


def test_when_and_under_which_id_a_run_was_launched_is_no_difference() -> None:
    """The id stands in paths of its own values, too."""
    launched = make_record("gpu01").launched
    first, second = make_first(), make_other(launched)
    argv = [("train.py", "--out", f"/data/{run.run_id}/out", "--shift", "-0.5") for run in (first, second)]
    first = make_first(replace(launched, argv=argv[0]))
    second = make_other(replace(launched, argv=argv[1]))
    assert set(find_differences(first, second)) <= {"cause"}
    page = read_parts(render_report(first, second, "cctl", ()))
    differing = next(part for part in page if part.startswith("What differs"))
    assert "launched" not in differing and "ended at" not in differing


@pytest.mark.parametrize(
    ("argv", "arguments"),
    [
        (("train.py", "--lr", "0.1"), {"program": "train.py", "--lr": "0.1"}),
        (("-m", "pkg.train"), {"-m": "pkg.train"}),
        (("a.py", "--lr=0.1", "--x", "-1e-3"), {"program": "a.py", "--lr": "0.1", "--x": "-1e-3"}),
        (("a.py", "--tag", "a", "--tag", "b c"), {"program": "a.py", "--tag": "a 'b c'"}),
        (("a.py", "-", "--fast"), {"program": "a.py -", "--fast": "set"}),
        (
            ("--nnodes", "2", "--module", "--", "pkg.train", "--lr", "0.1"),
            {"program": "pkg.train", "--lr": "0.1"},
        ),
    ],
)
def test_arguments_are_compared_by_option(argv: tuple[str, ...], arguments: dict[str, str]) -> None:
    """A number is no option; an option without a value is set; torchrun's own are ours."""
    launched = Launched(argv, "torch.distributed.run" if "--" in argv else "")
    groups = list_groups(make_first(launched), make_other(launched))
    (group,) = (group for group in groups if group.title == "arguments")
    assert {pair.name: pair.first for pair in group.pairs} == arguments


@pytest.mark.parametrize("secret", ["Abcd1234efgh", "Hunter 22x", "12345678"])
def test_a_secret_in_a_cell_of_its_own_is_struck_out(secret: str) -> None:
    """Arguments in both forms, keys of the job and variables; that they differ is known, in what is equal too."""
    launched = [
        Launched(
            ("a.py", f"--api-key={value}", "--hf_token", value, "--password", secret, "--max-tokens", "77"),
            env={"MY_SECRET": value},
            job={"ray": f'{{"access_key": "{value}"}}'},
        )
        for value in (secret, secret[::-1])
    ]
    page = render_report(make_first(launched[0]), make_other(launched[1]), "cctl", ())
    compared = page.partition("Both reports")[0]
    differing, _, equal = compared.partition("What is equal")
    names = ("--api-key", "--hf_token", "MY_SECRET", "ray.access_key")
    assert [differing.count(f"<code>{name}</code>") for name in names] == [1] * 4
    assert (
        differing.count("<code>[secret]</code>") == 8
        and "<dd>[secret]</dd>" in equal
        and "<dd>77</dd>" in equal
    )
    assert secret not in compared and secret[::-1] not in compared


def test_files_that_differ_are_named() -> None:
    """Added, removed, changed, from the first run to the second; without both trees only the hashes are compared."""
    first, second = {"a.py": "1", "b.py": "2", "c.py": "3"}, {"a.py": "1", "b.py": "9", "d.py": "4"}
    assert compare_code(first, second) == [("b.py", "changed"), ("c.py", "removed"), ("d.py", "added")]
    launched = make_record("gpu01").launched
    both = render_report(make_first(code=first), make_other(launched, second), "cctl", ())
    assert "3 files of the code" in both and "d.py" in both and "a.py" not in both
    assert "files of the code" not in render_report(make_first(code=first), make_other(launched), "cctl", ())


def test_what_differs_comes_before_what_is_equal_and_the_reports() -> None:
    """The results in their colours, both names at the curves, and all else folded."""
    launched = replace(make_record("gpu01").launched, argv=("train.py", "--lr", "0.2"))
    first, second = make_first(), make_other(launched)
    page = render_report(first, second, "cctl", ())
    titles = [part.partition("</h2>")[0] for part in page.split("<h2>")[1:5]]
    assert titles == ["What differs", "Numbers of both runs", "What is equal", "Both reports"]
    head = page.partition("Numbers of both runs")[0]
    assert "--lr" in head and "ann@laptop" not in head
    folded = page.partition("What is equal")[2]
    assert folded.count("<details><summary>report of ") == 2
    curves = page.partition("Numbers of both runs")[2].partition("What is equal")[0]
    assert "923c" in curves and "77aa" in curves
    assert 'class="chip state-failed"' in head


def test_runs_of_different_jobs_are_named_by_them() -> None:
    """Short ids alone say too little then."""
    first, second = make_first(), make_other(Launched())
    assert name_runs(first, second) == ("923c", "77aa")
    renamed = {name: replace(part, job="mnist") if part else None for name, part in second.parts.items()}
    assert name_runs(first, replace(second, parts=renamed)) == ("digits 923c", "mnist 77aa")


def test_a_run_without_records_is_compared_too() -> None:
    """As when its nodes do not answer."""
    page = render_report(make_first(), make_run({}), "cctl", ())
    assert "What differs" in page
