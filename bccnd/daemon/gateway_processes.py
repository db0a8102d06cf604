"""Runs the configured gateways as child processes of the daemon."""

from __future__ import annotations

from typing import Final

from bccnd import log
from bccnd.bus.requests.gateway_links import GatewayLinks
from bccnd.config import Settings
from bccnd.gateways import NAMES
from bccnd.net.loop import Loop
from bccnd.net.process_supervisor import ChildProcess, python_command

#: seconds within which gateways that are services of their own have to report
REPORT_WITHIN: Final = 30.0


class GatewayProcesses:
    """Runs gateways, all of them in ``by_name``; none if they are ``external``: services of their own."""

    def __init__(self, loop: Loop, links: GatewayLinks, config_path: str | None, *, external: bool) -> None:
        options = ["--bound", *(["--config", config_path] if config_path else [])]
        self.by_name: dict[str, ChildProcess] = {}
        for name in () if external else NAMES:
            command = python_command("bccnd.cli.bccnd_main", "--gateway", name, *options)
            self.by_name[name] = ChildProcess(loop, name, command)
        self._loop = loop
        self._links = links
        #: the settings with which each gateway was started
        self._started_with: dict[str, object] = {}

    def apply(self, settings: Settings) -> None:
        """Start the configured gateways, restart those whose settings have changed or that gave up, stop the rest."""
        configured = {name: section for name in NAMES if (section := getattr(settings.gateways, name)) is not None}
        self._links.expected = list(configured)
        if not self.by_name:
            self._loop.later(REPORT_WITHIN, self._report_missing)
        for name, process in self.by_name.items():
            wanted = (configured[name], settings.dedup.horizon) if name in configured else None
            if wanted != self._started_with.get(name) or process.gave_up:
                self._started_with[name] = wanted
                process.stop()
                if wanted is not None:
                    process.start()

    def _report_missing(self) -> None:
        for name in [one.gateway for one in self._links if not one.up]:
            log.event(
                "doubtful_setting",
                f"gateways.{name} is configured, but no such gateway is running",
                remedy=f"systemctl enable --now bccnd-{name}, and see 'systemctl status bccnd-{name}'",
                setting=f"gateways.{name}",
            )

    def close(self) -> None:
        for process in self.by_name.values():
            process.close()
