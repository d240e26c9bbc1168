"""The state of a job, carried from one checkpoint into another that is made for other settings.

An *export* is a folder of Delta tables with everything that a checkpoint knows, and a manifest. What of it changes
with the settings is here: which group a group becomes, how its keys are written, which shard has them. Spark reads and
writes the state itself (`spark.state_carry`).
"""
