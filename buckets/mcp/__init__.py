"""What assistants ask of a job, by the Model Context Protocol over standard input and output; it imports no Spark."""
