"""A value that is computed again, beside the recorded one."""

from decimal import Decimal

from buckets.aggregates.plain import PlainValue
from buckets.history.explain.explanation import RecordedValue, ValueComparison
from buckets.numbers.figures import readable


def compare(plain: PlainValue, recorded: RecordedValue | None) -> ValueComparison:
    """Compare a value that is computed again with the recorded one."""
    if recorded is None:
        return ValueComparison(None, None, "no value is recorded to compare it with")
    again = plain.shown
    equal = _same(again, recorded.value)
    words = _words(again)
    if equal:
        return ValueComparison(
            True, None if recorded.exact else True, f"computed again: {words}, equal to the last digit"
        )
    if recorded.exact and recorded.warm:
        sentence = f"computed again: {words}, and {_words(recorded.value)} is recorded: they differ"
        return ValueComparison(False, None, sentence, is_fault=True)
    if not recorded.exact:
        within = _is_within(again, recorded)
        bounds = f"{_words(recorded.lower)} and {_words(recorded.upper)}"
        lies = "within the recorded bounds" if within else "outside the recorded bounds"
        sentence = f"computed again: {words}, {lies} {bounds} (of {_words(recorded.value)})"
        return ValueComparison(False, within, sentence, is_fault=recorded.warm and not within)
    sentence = (
        f"computed again from all that arrived: {words}; {_words(recorded.value)} is recorded, whose window was not "
        "complete"
    )
    return ValueComparison(False, None, sentence)


def _same(again: Decimal | bool | None, recorded: str | bool | None) -> bool:
    if again is None or recorded is None or isinstance(again, bool) or isinstance(recorded, bool):
        return again is recorded or (again == recorded and isinstance(again, bool) == isinstance(recorded, bool))
    return again == Decimal(recorded)


def _is_within(again: Decimal | bool | None, recorded: RecordedValue) -> bool:
    if again is None:
        return True
    if isinstance(again, bool):
        return again in (recorded.lower, recorded.upper)
    return Decimal(str(recorded.lower)) <= again <= Decimal(str(recorded.upper))


def _words(value: Decimal | str | bool | None) -> str:
    if value is None:
        return "no value"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return readable(value)
