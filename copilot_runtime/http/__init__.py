"""HTTP to the services that this runtime calls."""
