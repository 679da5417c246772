"""`copilot-runtime test`: conversations in files, played against applications."""
