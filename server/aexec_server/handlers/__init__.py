"""The handlers of the Session API: runs, sessions, queues, tensors, health and metrics."""
