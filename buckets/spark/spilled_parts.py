"""Parts of rules that span groups, where they are too many for the driver: executors judge the rules by pieces."""

from collections.abc import Iterable, Iterator, Sequence

from pyspark.sql import SparkSession

from buckets.engine.stages.fired_parts import fired_parts
from buckets.engine.stages.pieces import PIECES, cut_by_event
from buckets.engine.stages.shard import Produced, Scorer
from buckets.spark.apart import run_apart
from buckets.spark.batch_properties import lists_of_task, rule_set_of_task, terms_of_task
from buckets.spark.spilled import beyond_share, spilled

_Piece = tuple[int, list[bytes]]
"""The number of a piece, and the payloads of it that were on the driver."""


def thinned_parts(session: SparkSession, parts: Sequence[bytes]) -> list[Produced]:
    """Return what is left of parts for the driver, and evaluations of their rules, as `fired_parts` puts them out.

    Args:
        session: of Spark; the thread has set what tasks need to know of the batch.
        parts: all payloads of output `PARTS`, or where they lie.
    """
    lying = [at for at in map(spilled, parts) if at is not None]
    at_hand = [cut_by_event(packed) for packed in parts if spilled(packed) is None]

    def work(pieces: Iterable[_Piece]) -> Iterator[Produced]:
        rule_set, terms = rule_set_of_task(), terms_of_task()
        scorer = Scorer(terms.event_schema, terms.engine, terms.evaluations, lists_of_task())
        for number, payloads in pieces:
            of_piece = [*payloads, *(each for at in lying for each in at.payloads([number]))]
            yield from beyond_share(fired_parts(scorer, of_piece, rule_set), PIECES, rule_set, terms)

    pieces = [(number, [cut[number] for cut in at_hand if cut[number]]) for number in range(PIECES)]
    return run_apart(session, pieces, work)
