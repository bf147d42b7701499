"""Notifications: channels, messages, and the sender that works through the outbox."""
