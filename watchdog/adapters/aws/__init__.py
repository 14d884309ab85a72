"""AWS behind the ports: EC2, its market and quotas, the interruption queue and the object store's conditional writes."""
