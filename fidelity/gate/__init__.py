"""`fidelity gate`: may this diff merge? Its patches, their microtests, the suites they affect."""
