"""What a job needs before it has run, from its rules, its keys, its rate and its cluster.

A `Workload` says what is asked, `amounts` what a batch of it does, `Constants` what each of these costs on a machine,
and `forecast` puts them together. All of it is pure; `bench/size.py` fits the constants.
"""
