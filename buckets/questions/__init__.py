"""What people ask of a job, as the console and assistants ask it: alerts, explanations, keys, and long questions."""
