"""Reports the health of a job to Prometheus, Kubernetes and people on call, from the status that `monitor` keeps.

Nothing is counted here: each response is made from the current status.
"""
