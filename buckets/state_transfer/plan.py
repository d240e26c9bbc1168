"""What an import does: under which settings the job goes on, what becomes of rules and groups, what is different."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from buckets.checkpoint.basis import Basis, fixed_settings, is_same_source
from buckets.duration import format_duration
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.printable import quoted
from buckets.rules.completeness import Stretches
from buckets.rules.renaming import Names, renamed_rules
from buckets.rules.rule_faults import check_against_schema
from buckets.rules.rule_set import RuleSet, with_lateness
from buckets.state_transfer.export_manifest import ExportManifest
from buckets.state_transfer.regrouping import Regrouping, regrouping


@dataclass(frozen=True)
class CarryPlan:
    """What an import makes of an export.

    Attributes:
        manifest: of the export.
        basis: what the new checkpoint is made from.
        names: the new names of fields.
        before: the rules in force as they were.
        rule_set: the rules in force from now on; the same version where nothing of them changes.
        carried: what becomes of the groups.
        differences: what is different from now on, a line each.
    """

    manifest: ExportManifest
    basis: Basis
    names: Names
    before: RuleSet
    rule_set: RuleSet
    carried: Regrouping
    differences: tuple[str, ...]


def parse_names(written: Sequence[str]) -> dict[str, str]:
    """Read the fields that are renamed, written as `old=new`.

    Raises:
        BucketsError: one is not written so, or a name is there twice.
    """
    names: dict[str, str] = {}
    for renaming in written:
        old, equals, new = renaming.partition("=")
        if not old or not new or not equals or old == new:
            message = f"--rename: {renaming!r} says no new name of a field; write it as in --rename payerId=payer"
            raise BucketsError(message)
        if old in names or new in names.values():
            message = f"--rename: {renaming!r}: each field is renamed once, and to a name of its own"
            raise BucketsError(message)
        names[old] = new
    return names


def plan_import(
    manifest: ExportManifest, rule_set: RuleSet, arrived: Stretches, basis: Basis, names: Names
) -> CarryPlan:
    """See what an import does.

    Raises:
        BucketsError: the state cannot go on under the configuration.
    """
    written, schema = manifest.job, EventSchema.model_validate(manifest.job["event_schema"])
    _check_names(schema, basis.schema, names)
    conflict = _conflict(written, schema, basis, names)
    if conflict is not None:
        message = f"the state of {manifest.checkpoint} {conflict}; this cannot be carried over"
        raise BucketsError(message)
    before_ms, now_ms = written["allowed_lateness_ms"], basis.engine.allowed_lateness
    next_version = rule_set.version + 1
    renamed = renamed_rules(rule_set, names, next_version)
    now = with_lateness(renamed.rule_set, next_version, arrived, before_ms, now_ms)
    if not names and now.groups == rule_set.groups and now.alert_groups == rule_set.alert_groups:
        now = rule_set
    _check_rules(now, basis.schema)
    groups = {group.group_id: group for group in (*now.groups, *now.alert_groups)}
    pairs = [
        (group, groups[renamed.groups[group.group_id].group_id]) for group in (*rule_set.groups, *rule_set.alert_groups)
    ]
    carried = regrouping(pairs, names, now_ms, written["shards"], basis.engine.shards)
    differences = tuple(_differences(manifest, basis, names, rule_set, now))
    return CarryPlan(manifest, basis, names, rule_set, now, carried, differences)


def _check_names(before: EventSchema, now: EventSchema, names: Names) -> None:
    for old, new in names.items():
        if old not in before.field_names:
            message = f"--rename {old}={new}: {quoted(old)} is no field so far; fields: {', '.join(before.field_names)}"
            raise BucketsError(message)
        if new in before.field_names and new not in names:
            message = f"--rename {old}={new}: there is a field {quoted(new)} already; give it another name"
            raise BucketsError(message)
        if new not in now.field_names:
            message = (
                f"--rename {old}={new}: event schema {now.name!r} does not declare {quoted(new)}; declare it there"
            )
            raise BucketsError(message)


def _conflict(written: Mapping[str, Any], before: EventSchema, basis: Basis, names: Names) -> str | None:
    """Return how the configuration contradicts what the state is made from, as text; None if it does not."""
    if not is_same_source(written["source"], basis.source):
        return f"is that of source {written['source']}, and the configuration names {basis.source}"
    subfolders = written.get("subfolders", basis.subfolders)
    if subfolders != basis.subfolders:
        return f"was made with source.subfolders {str(subfolders).lower()}, and the configuration says otherwise"
    now = fixed_settings(basis.schema, {})
    for name, was in fixed_settings(before, names).items():
        if was != now[name]:
            return f"was made with {name} {was}, and the configuration says {now[name]}"
    for field, role in before.roles.items():
        role_now = basis.schema.roles.get(names.get(field, field))
        if role_now is not None and role_now != role:
            return f"was made with {field} as {role}, and the configuration says {role_now}"
    return None


def _check_rules(rule_set: RuleSet, schema: EventSchema) -> None:
    for rule in rule_set.rules:
        fault = check_against_schema(rule, schema) if rule.state != "DELETE" else None
        if fault is not None:
            message = (
                f"rule {rule.rule_id!r} is in force, and does not fit the event schema ({'.'.join(fault[0])}: "
                f"{fault[1]}); rename the field with --rename, declare it, or delete the rule before you export"
            )
            raise BucketsError(message)


def _differences(manifest: ExportManifest, basis: Basis, names: Names, before: RuleSet, now: RuleSet) -> Iterator[str]:
    written = manifest.job
    if written["shards"] != basis.engine.shards:
        yield (
            f"engine.shards: {written['shards']} until now, {basis.engine.shards} from now on; all shards know the "
            "latest of what any of them has evicted of a group, so that more results of keys that come back say "
            "`warm: false`"
        )
    was_ms, now_ms = written["allowed_lateness_ms"], basis.engine.allowed_lateness
    if was_ms != now_ms:
        line = f"engine.allowed_lateness: {format_duration(was_ms)} until now, {format_duration(now_ms)} from now on"
        what = "; windows that reach back further than what has been kept say `warm: false`"
        yield line + (what if now_ms > was_ms else "; what is older than the shorter horizon is removed")
    for old, new in names.items():
        yield f"{old} is {new} from now on; keys of results and ids of alerts whose rules group by it name {new}"
    fields = EventSchema.model_validate(written["event_schema"]).roles
    kept = {names.get(field, field) for field in fields}
    for field, role in basis.schema.roles.items():
        if field not in kept:
            yield f"the event schema has a field more, {field} as {role}"
    for field in fields:
        if names.get(field, field) not in basis.schema.roles:
            yield f"the event schema does not declare {field} any more; no rule in force names it"
    yield from basis.settings_changed(written)
    if now.version != before.version:
        yield f"the rule set gets version {now.version}; rules keep their versions"
