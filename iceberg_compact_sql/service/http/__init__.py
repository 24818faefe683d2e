"""The HTTP door of the service."""
