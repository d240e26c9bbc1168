"""The policies of rules: what holds an alert back that has fired, one module a policy."""
