"""pytest plugin of the harness: hooks only; what they do lies in the modules that they call."""
