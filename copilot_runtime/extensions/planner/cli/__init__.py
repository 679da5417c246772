"""`copilot-runtime plan`: what a planner does, in a terminal."""
