"""Agent: the process beside a node that follows its commit log into the tables' change logs."""
