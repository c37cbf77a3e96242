"""Division of graphs: into regions that run as one, and into one partition per device."""
