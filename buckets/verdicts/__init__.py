"""What people have found about alerts: fraud, legitimate or unclear; and what follows for rules."""
