"""`stage` of a job: sources, places, and the directory and name that each entry has on the nodes."""

from __future__ import annotations

import pytest

from clusterctl.errors import InvalidValueError
from clusterctl.specs.job.parse import parse_job
from clusterctl.specs.job.stage import Stage, StageSource, parse_stage_source


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("./corpus/", StageSource("here", "./corpus/")),
        ("~/a:b", StageSource("here", "~/a:b")),
        ("gpu01:/data/imagenet", StageSource("node", "/data/imagenet", "gpu01")),
        ("hf://gpt2", StageSource("hf", "gpt2")),
        ("hf://datasets/org/set@refs/pr/1", StageSource("hf", "datasets/org/set", revision="refs/pr/1")),
        ("ms://org/model@v1.0", StageSource("ms", "org/model", revision="v1.0")),
        ("https://host:8443/a/f.tar?part=1", StageSource("url", "https://host:8443/a/f.tar?part=1")),
    ],
)
def test_a_source(text: str, source: StageSource) -> None:
    """Each form is told from the others, with its revision."""
    assert parse_stage_source(text) == source


@pytest.mark.parametrize("url", ["https://host:65536/f", "http://[::1]:99999/f"])
def test_a_port_that_none_can_have_is_refused(url: str) -> None:
    """Before anything connects."""
    with pytest.raises(InvalidValueError) as caught:
        parse_stage_source(url)
    assert "is not the URL of a file" in str(caught.value)
    assert parse_stage_source("https://[::1]:65535/f").name == "f"


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("hf:/org/model@v1", "hf://org/model@v1"),
        ("ms:org/model", "ms://org/model"),
        ("https:/host/f.tar", "https://host/f.tar"),
        ("http:/host/f.tar", "http://host/f.tar"),
    ],
)
def test_a_url_without_its_second_slash_is_no_path_of_a_node(text: str, fixed: str) -> None:
    """The error shows the URL that was meant; no cluster names a node so."""
    with pytest.raises(InvalidValueError) as caught:
        parse_stage_source(text)
    assert f"'{text}' has no // after the colon" in str(caught.value)
    assert caught.value.fix == f"write '{fixed}'"


@pytest.mark.parametrize(
    ("stage", "place"),
    [
        (Stage(source="./corpus/", to="${stage_dir}/corpus"), ("${stage_dir}", "corpus")),
        (Stage(source="./corpus", to="/data/"), ("/data/", "corpus")),
        (Stage(source="./corpus"), ("${stage_dir}/", "corpus")),
        (Stage(source="./corpus", to="/top"), ("/", "top")),
        (Stage(source="./corpus", to="models"), ("~", "models")),
        (Stage(source="./corpus", to="~"), ("~", "corpus")),
        (Stage(source="https://host/f.tar?x=/y", to="${stage_dir}"), ("${stage_dir}", "f.tar")),
        (Stage(source="hf://org/model@v1", layout="directory"), ("${stage_dir}/", "model")),
    ],
)
def test_a_place(stage: Stage, place: tuple[str, str]) -> None:
    """The same entry goes to the same place, whether that is there already or not."""
    assert stage.folder_and_name == place


def test_a_cache_is_shared() -> None:
    """Repositories that go into the cache of their library do not exclude each other."""
    lines = [
        "name: a",
        "script: a.py",
        "stage:",
        "- from: hf://a/b",
        "- from: hf://a/c@v1",
        "- from: hf://a/c@v2",
    ]
    job = parse_job("\n".join(lines), "job.yaml")
    assert [stage.in_cache for stage in job.stage] == [True, True, True]
