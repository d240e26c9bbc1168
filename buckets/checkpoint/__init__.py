"""What the driver writes beside Spark's checkpoint: the job's record, rule versions, batch records, a lock.

`driver_state.Checkpoint` hands out the records; what needs one kind of them takes only that. Files only; no Spark.
What a batch computes is in `engine`.
"""
