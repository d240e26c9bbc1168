"""Files are written whole or not at all."""

import pytest

from buckets.files import write_whole


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "folder" / "file.json"
    write_whole(path, "before")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "after\udcff")
    assert path.read_text() == "before"
    write_whole(path, "after é")
    assert path.read_bytes() == "after é".encode()
