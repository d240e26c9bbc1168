"""An archive that is scored by tasks says what it says where one process scores it."""

from decimal import Decimal
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from buckets.history.backtest.backtest import archive_pieces
from buckets.history.backtest.sweep import parse_sweeps, swept_rules
from buckets.history.replay.replay import ReplayRequest, replay_history
from buckets.lists.list_file import load_list
from buckets.spark.history import score_archive
from tests.core.backtests import backtest, payments, rule
from tests.core.test_backtest import rule_sets
from tests.core.test_backtest_pieces import ROWS, RULES, archived_job
from tests.core.test_feature_run import archived, features
from tests.core.test_replay import lived, steps, told
from tests.laws import examples
from tests.strategies import cuts

pytestmark = pytest.mark.spark
FEW = settings(max_examples=examples(3), suppress_health_check=[HealthCheck.function_scoped_fixture])


@FEW
@given(rule_sets(), payments(), cuts())
def test_a_backtest_is_that_of_one_process(spark, tmp_path_factory, rules, rows, positions):
    rows = [*ROWS, *rows, {"id": "broken", "t": 1_700_000_000_000, "payer": "p", "card": "c", "amount": "much"}]
    _, history = archived_job(tmp_path_factory.mktemp("job"), rows, positions)
    swept = swept_rules(parse_sweeps(["sums.limit=0,5,100"], RULES), RULES)
    listed = rule("listed", where="payer IN LIST known")
    fraud = {"e05": Decimal(99), "e06": None, "never": None}
    for asked in (backtest([*RULES, *rules], swept=swept, confirmed=fraud), backtest([*RULES, listed])):
        known = Path(tmp_path_factory.mktemp("list")) / "known.csv"
        known.write_text("key\np1\n")
        object.__setattr__(asked, "lists", {"known": load_list(known)})
        pieces = archive_pieces(history, asked)
        assert len(pieces) > 0
        alone = asked.run(map(pieces.read, range(len(pieces))))
        assert asked.report(score_archive(spark, pieces, "alerts", asked.found_in)) == alone
        assert alone.total.alerts > 0


@FEW
@given(steps(), st.sampled_from(["recorded", "joined"]))
def test_a_replay_is_that_of_one_process(spark, happened, cut_as):
    with lived(happened) as job:
        if not job.archive.end():
            return
        history, request = job.history(), ReplayRequest(evaluations=True, cuts=cut_as)
        on_spark = partial(score_archive, spark)
        assert told(replay_history(history, request, score=on_spark)) == []
        gone = DeltaTable(job.folder / "tables" / "evaluations").to_pyarrow_table()["event_id"].to_pylist()[:1]
        DeltaTable(job.folder / "tables" / "evaluations").delete(f"event_id = '{gone[0]}'" if gone else "false")
        alone = replay_history(history, request)
        assert told(replay_history(history, request, score=on_spark)) == told(alone)
        assert bool(gone) == bool(told(alone))


@pytest.mark.parametrize("ids", [None, ["e27", "e20", "never"]])
def test_features_are_those_of_one_process(spark, tmp_path, ids):
    _, past = archived(tmp_path)
    alone, expected = features(past, ids)
    run, found = features(past, ids, partial(score_archive, spark))
    assert found == expected
    assert (run.outcomes, run.arrived, run.missing) == (alone.outcomes, alone.arrived, alone.missing)
