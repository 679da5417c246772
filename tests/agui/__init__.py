"""The words of AG-UI, read and written."""
