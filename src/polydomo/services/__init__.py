"""The broker's own services: management, inventory and files."""
