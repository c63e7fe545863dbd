"""WMP between brokers: devices, and brokers that lend each other their idle workers."""
