"""The planner of a session: makes a plan of a request and a graph, with the regions that devices and delegates run."""
