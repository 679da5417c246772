"""Draw surfaces that an agent writes."""
