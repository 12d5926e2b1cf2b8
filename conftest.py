"""Repository-wide pytest configuration: the plugin's own tests run pytest inside pytest."""

pytest_plugins = ["pytester"]
