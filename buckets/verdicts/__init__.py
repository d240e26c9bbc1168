"""People's verdicts on alerts (fraud, legitimate or unclear), and what follows for rules."""
