"""The archive of everything a job has read, and what each batch was scored with."""
