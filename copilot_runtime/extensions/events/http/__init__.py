"""Events over HTTP, for those who may read the resources that they are about."""
