"""The place of what is not a result, which several downloads into one directory share."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterctl.client.results.target_dir import META_FOLDER, TargetDirectory, prepare_meta, remove_meta
from clusterctl.errors import LocalSystemError


def test_a_second_download_takes_nothing_from_the_first(tmp_path: Path) -> None:
    """It is refused, and what it removes at its end is not the place where files of the first arrive."""
    prepare_meta(tmp_path)
    first = TargetDirectory(tmp_path, "", "cp-gpu01")
    with pytest.raises(LocalSystemError):
        TargetDirectory(tmp_path, "", "cp-gpu01")
    remove_meta(tmp_path, ["cp-gpu01"])
    assert (tmp_path / META_FOLDER / "cp-gpu01.parts").is_dir()
    with pytest.raises(LocalSystemError):
        TargetDirectory(tmp_path, "", "cp-gpu01")
    first.close()
    remove_meta(tmp_path, ["cp-gpu01"])
    assert list(tmp_path.iterdir()) == []
