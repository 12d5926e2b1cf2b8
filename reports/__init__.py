"""Reports of a run: `run.jsonl` to one HTML page and a Markdown summary."""

from reports.render import build, render_html, render_summary

__all__ = ["build", "render_html", "render_summary"]
