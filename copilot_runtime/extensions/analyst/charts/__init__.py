"""Charts from rows: Plotly, Vega-Lite, images and text."""
