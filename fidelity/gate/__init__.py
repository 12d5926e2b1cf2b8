"""`fidelity gate`: may this change merge? A diff, the patches in it, their microtests and suites."""
