"""norfab's broker, unmodified and without encryption: the reference for ours, here and in the tests.

python norfab_broker.py ENDPOINT [FOLDER [INVENTORY]]
"""

import os
import sys
import threading

from norfab.core.broker import NFPBroker
from norfab.core.inventory import NorFabInventory


def main(endpoint: str, folder: str = "", inventory: str = "") -> None:
    folder = os.path.abspath(folder)
    if inventory:
        known = NorFabInventory(path=inventory, base_dir=folder)
    else:
        known = NorFabInventory(data={"workers": {}}, base_dir=folder)
    known.broker.update({"endpoint": endpoint, "zmq_auth": False})
    # At this level it does not log each message.
    NFPBroker(endpoint, threading.Event(), known, "WARNING").mediate()


if __name__ == "__main__":
    main(*sys.argv[1:])
