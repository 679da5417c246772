"""What agents may know: resources, and the indexes that find them."""
