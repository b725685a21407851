"""Views of a report: text and tables, Markdown, figures (`plot/`), a web page (`page/`), and data (`export`)."""
