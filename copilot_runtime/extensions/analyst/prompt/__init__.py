"""What the model reads: static layers, the schema, skills, examples, hints and history."""
