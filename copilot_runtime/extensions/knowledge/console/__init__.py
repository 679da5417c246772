"""The page *Knowledge*: one HTML document, in parts."""
