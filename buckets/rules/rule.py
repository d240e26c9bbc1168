"""A rule: what makes an event an alert. It has features, and a condition over them and the fields of the event.

A rule that is written in the short form, `aggregate`, `window` and `limit`, gets its one feature and its condition
when it is read, and is written as it was; see `feature`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from buckets.aggregates.component import AVG, COUNT
from buckets.duration import DurationMs, format_duration
from buckets.events.schema import ALERT_SCORE, EventSchema
from buckets.expressions.expression import LIST_NAME, RULES_LIST, Expression
from buckets.moment import Moment, brief_time_text, moment_ms, moment_text
from buckets.numbers.fixed_point import AVERAGE_EXTRA_DIGITS
from buckets.printable import capitalised, one_line, short_line
from buckets.rules.condition import (
    ConditionField,
    Score,
    SqlFilter,
    SqlScore,
    condition_fields,
    condition_words,
    score_words,
)
from buckets.rules.feature import (
    FIELDS,
    SHORT_LOCATIONS,
    VALUE,
    Aggregation,
    Counted,
    Feature,
    Limit,
    NamedFeature,
    Part,
    condition_of,
    feature_of,
    phrase_of,
    sentence_of,
)
from buckets.rules.filter import Filter, FilterField, describe_filter, field_of, filter_fields, filter_lists
from buckets.rules.policies import MOST_SNOOZES, POLICIES, AlertPolicy, Snooze
from buckets.rules.role import asked_field, counted_field, has_roles, over_alerts
from buckets.rules.window import Window
from buckets.validation import Checked

Severity = Literal["low", "medium", "high", "critical"]
SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)  # The least first
MOST_TAGS = 50
LONGEST_TAG = 200
WHOLE_SHARE = 10_000  # All keys, in hundredths of a per cent
ALWAYS_MS = -(2**62), 2**62  # Before every event, and after every event
_SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,2})?)\s*%", re.ASCII)


def parse_share(value: Any) -> int:
    """Parse a share of keys such as `10%`; ValueError if it is invalid."""
    match = _SHARE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or not 0 < Decimal(match[1]) <= 100:
        message = f"{value!r} is not a share of keys; write 0.01% to 100%, as in 10%"
        raise ValueError(message)
    return int(Decimal(match[1]) * 100)


def share_text(value: int) -> str:
    """Return a share of keys for people."""
    return f"{Decimal(value).scaleb(-2).normalize():f}%"


Share = Annotated[int, BeforeValidator(parse_share), PlainSerializer(share_text, return_type=str, when_used="json")]
"""A share of keys, in hundredths of a per cent; people write `10%`."""


class Effective(Checked):
    """From when until when a rule is in effect, by the time of events; `until` is the first moment that is not."""

    model_config = ConfigDict(populate_by_name=True)

    start: Moment | None = Field(default=None, alias="from")
    until: Moment | None = None

    def _faults(self) -> Iterator[str]:
        if self.start is None and self.until is None:
            yield "needs `from`, `until` or both"
        if self.start is not None and self.until is not None and self.start >= self.until:
            start, until = moment_text(self.start), moment_text(self.until)
            yield f"from {start} is not before until {until}, so no event is in it"

    def span_ms(self) -> tuple[int, int]:
        """Return the first event time in it, and the first one after it, in ms."""
        first_ms, last_ms = ALWAYS_MS
        start_ms = first_ms if self.start is None else moment_ms(self.start)
        return start_ms, last_ms if self.until is None else moment_ms(self.until)


class ListPut(Checked):
    """What an alert writes into a list: the key of its event, which is in the list from then on, for some time.

    Attributes:
        put: the name of the list; conditions call it `rules.NAME`.
        key: the field of the event that is the key.
        until_ms: for how long after the event the key is in the list, in ms.
    """

    model_config = ConfigDict(populate_by_name=True)

    put: str
    key: str
    until_ms: DurationMs = Field(alias="until")

    @field_validator("put")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        if LIST_NAME.fullmatch(value) is None:
            message = f"{short_line(repr(value))} is not a name of a list; write letters, digits and _, as in blocked"
            raise ValueError(message)
        return value

    @field_validator("until_ms")
    @classmethod
    def _is_some_time(cls, value: int) -> int:
        if value <= 0:
            message = "a key is in a list for at least 1ms"
            raise ValueError(message)
        return value


def tag_fault(tag: str) -> str | None:
    """Return a fault of a tag, if any."""
    if not tag or tag.strip() != tag:
        return f"{short_line(repr(tag))} is empty, or begins or ends with a blank; write a word, as in cards"
    if len(tag) > LONGEST_TAG:
        return f"a tag has at most {LONGEST_TAG} characters, not {len(tag)}; write a word, as in cards"
    return None


State = Literal["ACTIVE", "SHADOW", "PAUSE", "DRAFT", "DELETE"]

MOST_FEATURES = 100  # The most features of a rule
_FEATURE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)
VARIANT_MARK = "!"
"""Prefix of the id of a variant, which a backtest tries beside its rule; no written rule has such an id."""
LARGEST_VERSION = 2**31 - 1  # Highest version of a rule: outputs keep it in 32 bits


def _from_the_limit() -> Any:
    """Return a placeholder for the condition of a rule in the short form until it is known."""


def _refuse(faults: Iterator[str]) -> None:
    for fault in faults:
        raise ValueError(fault)


class Rule(Checked):
    """One rule, as written in `rules.yaml` and as carried to the tasks."""

    rule_id: str = Field(min_length=1, max_length=200)
    version: int = Field(default=1, ge=1)
    state: State = "ACTIVE"
    description: str = ""
    group_by: tuple[str, ...]
    where: FilterField = ()
    aggregate: Aggregation | None = None
    window: Window | None = None
    limit: Limit | None = None
    features: dict[str, Feature] = Field(default_factory=dict, max_length=MOST_FEATURES)
    when: ConditionField = Field(default_factory=_from_the_limit)
    on: Counted = "events"
    severity: Severity | None = None
    tags: tuple[str, ...] = Field(default=(), max_length=MOST_TAGS)
    score: Score = 0
    cooldown: DurationMs | None = Field(default=None, gt=0)
    reset_on_alert: bool = False
    require_warm: bool = False
    rollout: Share = WHOLE_SHARE
    effective: Effective | None = None
    snoozes: tuple[Snooze, ...] = Field(default=(), max_length=MOST_SNOOZES)
    silence: dict[str, str] = Field(default_factory=dict)
    then: ListPut | None = None

    @field_validator("rule_id", mode="before")
    @classmethod
    def _id_may_be_a_number(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("group_by")
    @classmethod
    def _fields_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value):
            message = f"a field is named twice in {list(value)}"
            raise ValueError(message)
        if has_roles(value):
            message = "the key of a rule is of its own event; a feature may have `group_by: [beneficiaryId AS payerId]`"
            raise ValueError(message)
        return value

    @field_validator("when", mode="wrap")
    @classmethod
    def _may_be_null(cls, value: Any, parse: ValidatorFunctionWrapHandler) -> Any:
        return None if value is None else parse(value)

    @field_validator("features")
    @classmethod
    def _names_are_words(cls, value: dict[str, Feature]) -> dict[str, Feature]:
        for name in value:
            if _FEATURE_NAME.fullmatch(name) is None:
                message = (
                    f"{short_line(repr(name))} is not a name of a feature; write letters, digits and _, as in recent_1h"
                )
                raise ValueError(message)
        return value

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, data: Any, read: ModelWrapValidatorHandler["Rule"]) -> "Rule":
        rule = read(data)
        if not isinstance(data, Rule):
            _refuse(rule._faults_of_form())
            _refuse(rule._with_condition()._faults_of_lists())
        return rule

    def _faults_of_form(self) -> Iterator[str]:
        given: dict[str, Any] = {name: getattr(self, name) for name in FIELDS}
        has_condition: bool = self.when is not None
        if self.features or has_condition:
            both = next((name for name, value in given.items() if value is not None), None)
            if both is not None:
                yield f"has `features` or `when`, and `{both}`; write `aggregate`, `window`, `limit`, or the other two"
            given = {"when": self.when}
        if self.reset_on_alert and has_condition:
            yield "`reset_on_alert` goes with `aggregate`, `window` and `limit`, not with `features` and `when`"
        if self.reset_on_alert and self.window is not None and not self.window.is_plain:
            yield "`reset_on_alert` goes with a window of a `length` that ends with its event"
        for name, feature in self.features.items():
            if feature.on is not None and self.on == "alerts":
                yield f"features.{name}.on: all features of a rule over alerts are over alerts; leave it out"
            if feature.on is not None and not (self.group_by if feature.group_by is None else feature.group_by):
                yield f"features.{name}: needs a field to group alerts by, as in group_by: [payerId]"
        for name in (name for name, value in given.items() if value is None):
            yield f"`{name}` is missing; a rule has `aggregate`, `window` and `limit`, or `features` and `when`"

    def _faults_of_lists(self) -> Iterator[str]:
        """Yield faults of the list that it writes, or of rule-written lists that it looks into."""
        for name in sorted(name for where in self._filters for name in filter_lists(where)):
            if name.startswith(RULES_LIST):
                yield f"rules write list {name}, so `when` and `score` look into it, and filters do not"
        for test in self.rules_list_tests:
            if self.on == "alerts" or self.limit is not None:
                yield f"rules write list {test.value}, so only `when` and `score` of a rule over events look into it"
        for test in self.rules_list_tests:
            if test.operands[0].operator != "field" or test.operands[0].is_array:
                at = test.value
                yield f"the key of {at} is a field of the event that is a text, as in payerId IN LIST {at}"
        if self.then is not None and (self.on == "alerts" or self.asks_alerts):
            what = "of a rule over alerts" if self.on == "alerts" else "that follows from other alerts"
            yield f"then: an alert {what} writes no list, as it counts for no rule; leave `then` out"

    def _with_condition(self) -> "Rule":
        """Add feature and condition to a rule in the short form."""
        if self.aggregate is not None and self.window is not None and self.limit is not None:
            object.__setattr__(self, "features", {VALUE: feature_of(self.aggregate, self.window)})
            object.__setattr__(self, "when", condition_of(self.limit))
        return self

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> "Rule":
        """Return the rule with other fields; in the short form, feature and condition are derived again."""
        return super().model_copy(update=update, deep=deep)._with_condition()

    @model_serializer(mode="wrap")
    def _of_its_form(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit the fields of the other form, and those of policies that it does not have."""
        others = ("features", "when") if self.is_short else FIELDS
        without = {name for name, default in _DEFAULTS.items() if getattr(self, name) == default}
        written: dict[str, Any] = write(self)
        return {name: value for name, value in written.items() if name not in others and name not in without}

    @property
    def is_short(self) -> bool:
        """Return whether it was written in the short form."""
        return self.limit is not None

    @property
    def is_in_force(self) -> bool:
        """Return whether the job keeps state for the rule: not for a draft or a deleted rule."""
        return self.state not in ("DRAFT", "DELETE")

    @property
    def is_evaluated(self) -> bool:
        """Return whether the rule is evaluated for events; a paused rule only keeps its events."""
        return self.state in ("ACTIVE", "SHADOW")

    @property
    def is_variant(self) -> bool:
        """Return whether it is a backtest's variant, a rule with other numbers, whose alerts keep only their events."""
        return self.rule_id.startswith(VARIANT_MARK)

    @property
    def policies(self) -> tuple[AlertPolicy[Any], ...]:
        """Its policies: those whose fields are set, in the order in which they decide."""
        return tuple(policy(getattr(self, policy.field)) for policy in POLICIES if getattr(self, policy.field))

    @property
    def depends_on_alerts(self) -> bool:
        """Whether one of its alerts may depend on earlier ones, because of its policies."""
        return any(policy.depends_on_alerts for policy in self.policies)

    @property
    def asks_alerts(self) -> bool:
        """Whether it is over events, and has features over alerts, or looks into a list that alerts write."""
        return any(feature.on is not None for feature in self.features.values()) or bool(self.rules_list_tests)

    @property
    def is_count(self) -> bool:
        """Return whether its one feature is a count, which is 0 and not NULL without events."""
        (feature,) = self.features.values()
        return feature.aggregate.operation == COUNT

    @property
    def measure(self) -> str | None:
        """Return the field of the one feature of a rule in the short form; None for a count, and for other rules."""
        return self.features[VALUE].of if self.is_short else None

    @property
    def filter_fields(self) -> frozenset[str]:
        """Return the fields that its filters, its condition and its score name."""
        named = [name for sql in self._computed for name in condition_fields(sql, self.features)]
        return frozenset(named).union(*(map(field_of, filter_fields(where)) for where in self._filters))

    @property
    def _filters(self) -> list[Filter]:
        """Return its own filter, and those of its features."""
        return [self.where, *(where for feature in self.features.values() for where in feature.filters.values())]

    @property
    def _computed(self) -> list[SqlFilter]:
        """Return the expressions over its features: its condition, and its score unless that is a constant."""
        return [self.when, *([self.score] if isinstance(self.score, SqlScore) else [])]

    @property
    def named_in(self) -> frozenset[str]:
        """Return the names of features and fields in its condition and score."""
        return frozenset(name for sql in self._computed for name in sql.expression.fields())

    @property
    def lists(self) -> frozenset[str]:
        """Return the lists of the job that its filters, its condition and its score look into."""
        return frozenset(name for name, _ in self.list_keys)

    @property
    def rules_list_tests(self) -> tuple[Expression, ...]:
        """Return the tests in its condition and score that look into rule-written lists."""
        tests = (test for sql in self._computed for test in sql.expression.list_tests())
        return tuple(test for test in tests if str(test.value).startswith(RULES_LIST))

    @property
    def list_keys(self) -> frozenset[tuple[str, int]]:
        """Return the lists of the job that it looks into, each with the number of parts of a key."""
        sql = (where for where in [*self._filters, *self._computed] if isinstance(where, SqlFilter))
        named = (each for where in sql for each in where.list_keys)
        return frozenset((name, parts) for name, parts in named if not name.startswith(RULES_LIST))

    @property
    def group_where(self) -> Filter:
        """Return the filter of its groups.

        The features of a rule may count different events, and one group without a filter serves them all, and those of
        other rules with the same fields. A rule in the short form has a group with its own filter.
        """
        return self.where if self.is_short else ()

    def named_features(self) -> tuple[NamedFeature, ...]:
        """Return its features, each with its grouping and filter."""
        named = []
        for name, feature in self.features.items():
            fields = self.group_by if feature.group_by is None else feature.group_by
            if feature.aggregate.by_value and feature.of is not None and feature.of not in fields:
                fields = (*fields, feature.of)
            where = feature.where or () if feature.steps or feature.where is not None else self.where
            if feature.on is not None:
                fields, where = over_alerts(fields), feature.where or ()
            named.append(NamedFeature(name, feature, fields, self.group_where, where, self.state == "SHADOW"))
        return tuple(named)

    def groupings(self) -> list[tuple[tuple[str, ...], Filter]]:
        """Return the fields and the filter of each group that the rule needs, starting with its own key's."""
        different: dict[frozenset[str], tuple[str, ...]] = {frozenset(self.group_by): self.group_by}
        for named in self.named_features():
            different.setdefault(frozenset(named.fields), named.fields)
        return [(fields, self.group_where) for fields in different.values()]

    def parts(self, fields: Iterable[str]) -> tuple[Part, ...]:
        """Return the parts that a group of the rule computes for its features.

        The group of the rule's own key always computes something, since repeats of an event are recognised there.
        """
        grouped = frozenset(fields)
        here = (named for named in self.named_features() if frozenset(named.fields) == grouped)
        parts = [part for named in here for _, part in named.parts()]
        if not parts and grouped == frozenset(self.group_by):
            parts = [Part(COUNT, None, None, None, self.longest_window, self.state == "SHADOW")]
        return tuple(dict.fromkeys(parts))

    def windows(self, fields: Iterable[str]) -> list[Window]:
        """Return its windows in a group; see `parts`."""
        return [part.window for part in self.parts(fields)]

    @property
    def longest_window(self) -> Window:
        """Return its window that begins the earliest."""
        windows = (feature.window for feature in self.features.values())
        return max(windows, key=lambda window: window.begins_ms, default=_OWN_EVENT)

    @property
    def ends_ms(self) -> int:
        """Return how long before its event its last window ends."""
        return min((feature.window.offset_ms for feature in self.features.values()), default=0)

    def sentence(self) -> str:
        """Return the rule in English."""
        if self.limit is None:
            return self._sentence_of_features()
        by = " and ".join(f"the same {field}" for field in self.group_by)
        events = f" of {self.on} of {by}" if by else f" of all {self.on}"
        where = f" where {describe_filter(self.where)}" if self.where else ""
        return sentence_of(self.features[VALUE], self.limit, self.on, events=f"{events}{where}")

    def written_at(self, *location: str) -> tuple[str, ...]:
        """Return where a field of a feature or condition appears in the written rule."""
        return SHORT_LOCATIONS.get(location, location) if self.is_short else location

    def phrase(self, named: NamedFeature) -> str:
        """Return the computation of one of its features, in English: `the sum of paymentAmount`."""
        if not self.is_short:
            return named.phrase_over(named.feature.on or self.on)
        return capitalised(phrase_of(named.feature))

    def _sentence_of_features(self) -> str:
        by = " and ".join(self.group_by)
        events = f"For {self.on} of the same {by}" if by else f"For all {self.on}"
        where = f" where {describe_filter(self.where)}" if self.where else ""
        parts = [condition_words(self.when), *map(self._described, self.named_features())]
        return f"{events}{where}: {'; '.join(parts)}"

    def _described(self, each: NamedFeature) -> str:
        where = f" where {describe_filter(each.where)}" if each.where != self.where else ""
        if not each.where and self.where:
            where = "" if each.feature.steps else " whatever they are"
        fields, by = each.feature.group_by, ""
        if fields is not None and frozenset(fields) != frozenset(self.group_by):
            by = f" by {', '.join(fields)}" if fields else f" of all {self.on}"
        counted = each.feature.on or self.on
        phrase = each.phrase_over(counted)
        if has_roles(each.fields):
            own = f"this {self.on.removesuffix('s')}'s"
            pairs = (f"{counted_field(field)} is {own} {asked_field(field)}" for field in each.fields)
            of = "" if phrase.endswith(counted) else f" of {counted}"
            where = f" where {describe_filter(each.where)}" if each.feature.on and each.where else where
            where, by = f"{of} whose {' and '.join(pairs)}{where if each.where else ''}", ""
        return f"{each.name} is {phrase}{where}{by} over {each.feature.window.words_over(counted)}"


_OWN_EVENT: Final = Window.model_validate({"length": "1ms"})  # Of a rule without features
POLICY_FIELDS = tuple(Rule.model_fields)[[*Rule.model_fields].index("on") :]
"""Fields that are written only if they are set."""
_DEFAULTS = {name: Rule.model_fields[name].get_default(call_default_factory=True) for name in POLICY_FIELDS}


def extra_digits(rule: Rule) -> int:
    """Return how many more digits a rule with one feature has than its measure: six for an average."""
    (feature,) = rule.features.values()
    return AVERAGE_EXTRA_DIGITS if feature.aggregate.operation == AVG else 0


def value_scale(rule: Rule, schema: EventSchema) -> int:
    """Return the scale of the value that a rule with one feature compares with its limit.

    It is the scale of its measure, 0 for a count or a long integer, plus six for an average.
    """
    (feature,) = rule.features.values()
    is_score = rule.on == "alerts" and feature.of == ALERT_SCORE
    measure = None if is_score else schema.measures.get(feature.of or "")
    return extra_digits(rule) + (0 if measure is None else measure.scale)


def policy_sentence(rule: Rule) -> str:
    """Return severity, score, tags and policies of a rule as sentences; empty if it has none of them."""
    return " ".join(f"{capitalised(sentence)}." for sentence in _sentences(rule))


def _sentences(rule: Rule) -> Iterator[str]:
    marks = [f"severity {rule.severity}"] if rule.severity else []
    marks += [f"score {score_words(rule.score)}"] if rule.score else []
    marks += [f"{'tag' if len(rule.tags) == 1 else 'tags'} {', '.join(rule.tags)}"] if rule.tags else []
    if marks:
        yield one_line(", ".join(marks))
    if rule.on == "alerts":
        yield "it counts alerts, not events"
    if rule.then is not None:
        for_how_long = format_duration(rule.then.until_ms)
        yield f"an alert puts the {rule.then.key} of its event into the list {rule.then.put} for {for_how_long}"
    if rule.effective is not None:
        yield f"in effect {_between(rule.effective)}, by the time of events"
    if rule.rollout != WHOLE_SHARE:
        yield f"alerts for {share_text(rule.rollout)} of keys"
    for policy in sorted(rule.policies, key=lambda policy: POLICY_FIELDS.index(policy.field)):
        yield from policy.words(rule.group_by)


def _between(effective: Effective) -> str:
    parts = [("from", effective.start), ("until", effective.until)]
    return " ".join(f"{word} {brief_time_text(moment_ms(moment))}" for word, moment in parts if moment is not None)
