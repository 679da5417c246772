"""Who may do what on this server: each about themselves, and operators about all."""
