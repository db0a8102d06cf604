"""Where the files of bccnd are on a host, unless said otherwise; importing it costs nothing."""

from typing import Final

#: the configuration
DEFAULT_PATH: Final = "/etc/bccnd/bccnd.yaml"
#: from where the unit passes keys to the daemon
KEY_FOLDER: Final = "/etc/bccnd/keys"
