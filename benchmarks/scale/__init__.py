"""Several server processes: streams, chunks from one to another, stops, users beside each other."""
