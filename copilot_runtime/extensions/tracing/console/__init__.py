"""The page *Traces*: one HTML document, in parts."""
