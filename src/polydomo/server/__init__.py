"""asyncio: listeners, connections, timers, signals; joins the rooms into a running broker."""
