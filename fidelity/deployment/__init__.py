"""A server from launch to teardown, and what it was found able to do."""
