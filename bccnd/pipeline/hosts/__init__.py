"""Decides which hosts were listening when, which sources each can receive, and how far its clock is off."""
