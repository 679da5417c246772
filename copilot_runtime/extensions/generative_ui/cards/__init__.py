"""What our own agents show beside their text, as A2UI surfaces for pages that draw these."""
