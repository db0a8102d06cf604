"""Default places of bccnd's files on a host; importing it costs nothing."""

from typing import Final

#: the configuration
DEFAULT_PATH: Final = "/etc/bccnd/bccnd.yaml"
#: the unit passes the keys in it to the daemon
KEY_FOLDER: Final = "/etc/bccnd/keys"
#: the socket of the bus
DEFAULT_SOCKET: Final = "/run/bccnd/bus.sock"
