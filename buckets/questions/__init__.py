"""Questions about a job from the console and assistants: alerts, explanations, keys, and long questions."""
