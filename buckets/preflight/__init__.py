"""What is looked at before a job starts: nothing here starts or writes anything."""
