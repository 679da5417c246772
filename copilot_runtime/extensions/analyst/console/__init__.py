"""The page *Data*: one HTML document, in parts."""
