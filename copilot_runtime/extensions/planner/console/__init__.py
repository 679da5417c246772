"""The page *Plans*: one HTML document, in parts."""
