"""Every key of both files can be explained, in both languages."""

from __future__ import annotations

import pytest

from clusterctl.cli.main import run
from clusterctl.specs.fields import keys_of
from clusterctl.specs.json_schema import FILES, all_paths, find_keys
from clusterctl.translation import use_language


def test_every_path_leads_to_its_key() -> None:
    """With one short sentence for editors and the reference; and the path without the file finds it too."""
    paths = all_paths()
    assert {"job.restart.max", "inventory.nodes.nic", "inventory.ssh.port", "job.sync.exclude"} <= set(paths)
    for path in paths:
        (entry,) = find_keys(path)
        assert entry.path == path
        assert entry.text.endswith(".")
        assert len(entry.text) < 200
        assert path in [found.path for found in find_keys(path.partition(".")[2])]


def test_every_text_is_chinese_for_a_chinese_reader() -> None:
    """None is left in English."""
    use_language("zh")
    try:
        texts = {path: find_keys(path)[0].text for path in all_paths()}
        values = {path: find_keys(path)[0].value for path in all_paths()}
    finally:
        use_language("en")
    assert [path for path, value in values.items() if "\n" in value] == []
    assert [path for path, text in texts.items() if not any(sign >= "\u4e00" for sign in text)] == []


@pytest.mark.parametrize(
    ("path", "value", "default"),
    [
        ("job.grace", "a time", "30s"),
        ("job.restart.max", "a whole number", "3"),
        ("job.log_limit", "", "50GB"),
        ("job.stall", "", "10m"),
        ("job.diagnose", "", "true"),
        ("inventory.python", "", "python3"),
        ("inventory.nodes.python", "", ""),
    ],
)
def test_value_and_default(path: str, value: str, default: str) -> None:
    """As they would stand in the file; a node's own setting has that of the top level."""
    (entry,) = find_keys(path)

    assert entry.default == default
    assert value in entry.value


def test_a_file_lists_its_keys() -> None:
    """`job` and `inventory`."""
    for name, model in FILES.items():
        (entry,) = find_keys(name)
        assert [key for key, _ in entry.below] == list(keys_of(model))


@pytest.mark.parametrize(
    ("word", "shown"), [("job.restart", "spares"), ("grace", "job.grace"), ("job", "nproc_per_node")]
)
def test_explain_shows_it(word: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A path, the name of a key, a file."""
    assert run(["explain", word]) == 0
    assert shown in capsys.readouterr().out


def test_a_family_of_codes_comes_before_a_key(capsys: pytest.CaptureFixture[str]) -> None:
    """`explain SSH` lists the codes, `explain inventory.ssh` the key."""
    assert run(["explain", "ssh"]) == 0
    assert "CC-SSH-007" in capsys.readouterr().out
