"""A Delta table as the source of an archive."""

import pytest

from buckets.archive.delta_source import delta_arrivals
from buckets.checkpoint.batch_ends import BatchEnd
from buckets.config.source import SourceSettings
from buckets.errors import BucketsError
from tests.core.examples import SCHEMA


def test_a_table_that_is_gone_is_one_line_where_it_is_needed(tmp_path, as_worded):
    source = SourceSettings.model_validate({"kind": "delta", "path": str(tmp_path / "gone"), "arrival": "at"})
    nothing, something = (BatchEnd(0, 1, {}, "{}", span) for span in (None, (1, 2)))
    assert list(delta_arrivals(source, [nothing], {0: SCHEMA})) == []
    with pytest.raises(BucketsError, check=as_worded):
        list(delta_arrivals(source, [something], {0: SCHEMA}))
