"""Repairs SQL that failed, by edits of its tree."""
