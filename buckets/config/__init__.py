"""A job's configuration: pydantic models of what stands in its YAML file, checked before anything starts.

Says what is wanted; opens no connection and starts nothing.
"""
