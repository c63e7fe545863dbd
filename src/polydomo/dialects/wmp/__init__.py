"""14/WMP, the Worker-Manager Protocol: workers ask many managers for jobs, through devices of any depth."""
