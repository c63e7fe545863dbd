"""14/WMP, the Worker-Manager Protocol: workers ask many managers for jobs, through any number of devices.

There is no `broker_client.py` and no `client.py`, because WMP has no clients: a manager has the jobs itself (joined
brokers are clients of the core, `polydomo.federation`). `wakeup.py` and `selection.py` decide which workers are told of
a job, because WMP's workers fetch jobs instead of being given them; `device.py` is the protocol's third role.
"""
