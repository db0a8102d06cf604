"""Prepares messages for sending: numbering and signing, redundancy, send queues, quotas of users."""
