"""The driver's files beside Spark's checkpoint: the job's record, rule versions, batch records, a lock.

`driver_state.Checkpoint` gives access to all records; code that needs only one kind takes that kind. Files only; no
Spark. What a batch computes is in `engine`.
"""
