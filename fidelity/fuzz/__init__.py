"""Random request scripts against a live server, judged by the same messages asked alone."""
