"""The page *Access*: one HTML document, in parts."""
