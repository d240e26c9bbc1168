"""What a process imports from which others are forked: the kernels, loaded or compiled."""

from buckets.engine.stages.warm_up import warm_up
from buckets.questions import rule_checks as rule_checks

warm_up()
