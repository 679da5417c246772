"""Export by the SDK of OpenTelemetry: the only folder that imports it, where it is needed."""
