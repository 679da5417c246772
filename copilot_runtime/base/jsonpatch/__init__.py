"""What changed between two JSON values, and JSON Patch (RFC 6902)."""
