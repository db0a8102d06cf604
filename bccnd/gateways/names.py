"""The former place of `bccnd.gateways.status.NAMES`."""

from bccnd.gateways.status import NAMES as NAMES
