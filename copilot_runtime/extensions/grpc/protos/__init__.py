"""The services as `.proto` files, and what `make protos` generates of them."""
