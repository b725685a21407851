"""The web page of a report: one HTML file, from the modules in `static/` and the data that Python gives them."""
