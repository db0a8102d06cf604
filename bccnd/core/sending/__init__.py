"""Prepares what is sent: numbering and signing, redundancy, send queues, quotas of users."""
