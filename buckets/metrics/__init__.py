"""Tells Prometheus, Kubernetes and people on call how a job is, from the status that `monitor` keeps of it.

Nothing is counted here: each answer is made of the status at that moment.
"""
