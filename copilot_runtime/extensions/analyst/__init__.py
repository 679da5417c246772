"""The data analyst: questions in, checked answers, tables and charts out."""
