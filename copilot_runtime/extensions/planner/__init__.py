"""Plans: a tree of tasks that assistants do, checked, corrected, and kept through a crash."""
