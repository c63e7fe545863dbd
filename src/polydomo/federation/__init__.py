"""What connects brokers and managers with each other over WMP: devices, and joined brokers."""
