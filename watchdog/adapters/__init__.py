"""The world behind the ports: AWS, Redis, Slack, webhooks, Prometheus, logs."""
