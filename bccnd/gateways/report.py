"""The former name of `bccnd.gateways.status`."""

from bccnd.gateways.status import no_report as no_report
from bccnd.gateways.status import read_report as read_report
