"""The planner of a session: from a request and a graph to a plan, with the regions that devices and delegates run."""
